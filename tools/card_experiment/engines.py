"""The engines that the experiment can start, and the task that each is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmserve_env.backends.real.tasks import H200_LIVE, TINY_SERVER

MODELS = Path(__file__).resolve().parent.parent / "recorder" / "models"


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """How an engine is started; `arguments` are vLLM's own."""

    task: str
    arguments: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What `vllm serve` would have set on this machine."""
    overhead_batches: tuple[tuple[int, int], ...] = ((8, 800),)
    """Sequences and output tokens of the batches on which the plug-in's cost is measured."""


ENGINES = {
    "h200": EnginePlan(
        H200_LIVE,
        {
            "model": str(MODELS / "llama-3-8b"),
            "load_format": "dummy",
            "max_num_seqs": 512,
            "max_num_batched_tokens": 8_192,
            "max_model_len": 16_384,
            "gpu_memory_utilization": 0.9,
            "async_scheduling": True,
            "disable_log_stats": True,
        },
        {"VLLM_USE_FLASHINFER_SAMPLER": "0"},
        # On a GPU of this size vLLM takes 8,192 tokens and 1,024 sequences, which this traffic never reaches.
        {"batch_cap": 512, "token_budget": 8_192, "kv_budget_fraction": 1.0, "priority_routing": False},
        ((64, 1_600), (256, 1_200)),
    ),
    "cpu": EnginePlan(
        TINY_SERVER,
        {
            "dtype": "float32",
            "enforce_eager": True,
            "block_size": 32,
            "num_gpu_blocks_override": 512,
            "max_num_seqs": 64,
            "max_num_batched_tokens": 2_048,
            "max_model_len": 4_096,
            "enable_prefix_caching": False,
            "disable_log_stats": True,
        },
        {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"},
        {"batch_cap": 64, "token_budget": 2_048, "kv_budget_fraction": 1.0, "priority_routing": False},
    ),
}
