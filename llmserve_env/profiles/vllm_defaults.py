"""What `vllm serve` starts with when it is told nothing, by GPU.

From `EngineArgs.get_batch_defaults` of vLLM 0.32.0 (`vllm/engine/arg_utils.py`): the defaults depend on the entry point
and on the card. These are those of the server (`UsageContext.OPENAI_API_SERVER`); offline use has larger ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from llmserve_env.profiles.schema import Gpu

VLLM_VERSION = "0.32.0"
LARGE_CARD_BYTES = 70 << 30
LARGEST_CARD_BYTES = 160 << 30


@dataclass(frozen=True, slots=True)
class VllmDefaults:
    """The two limits of a batch."""

    max_num_seqs: int
    max_num_batched_tokens: int


def vllm_defaults(gpu: Gpu) -> VllmDefaults:
    """The server's defaults on this card; an A100 counts as a small one whatever its memory."""
    if gpu.memory_bytes >= LARGEST_CARD_BYTES:
        return VllmDefaults(1_024, 16_384)
    if gpu.memory_bytes >= LARGE_CARD_BYTES and "a100" not in gpu.name.lower():
        return VllmDefaults(1_024, 8_192)
    return VllmDefaults(256, 2_048)
