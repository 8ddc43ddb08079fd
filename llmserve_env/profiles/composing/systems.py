"""Which published tables describe which card."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class System:
    """The tables of one card."""

    name: str
    folder: str
    version: str = "0.24.0"
    """Of vLLM, whose kernels were timed."""
    all_reduce: tuple[str, str] | None = None
    """(framework, version) of the all-reduce timings, where vLLM's are of another version."""
    memory_factor: float = 1.0
    """How much longer memory-bound work takes here than on the card that was timed."""
    sustained_factor: float = 1.0
    """How much longer large 16-bit products take in a row than one at a time: their power lowers the clock."""


HOPPER_SUSTAINED = 1.13
"""Measured on our H200: products of whole Llama-3-8B iterations of 1,024 to 8,192 tokens took 1.09 to 1.17 times the
sum of their single timings (`python -m benchmarks.profile_errors --composed`). The H100 is the same chip."""


SYSTEMS = {
    system.name: system
    for system in (
        System("a100-40gb", "a100_sxm", "0.14.0", memory_factor=2039 / 1555),
        System("a100-80gb", "a100_sxm", "0.14.0"),
        System("h100-80gb", "h100_sxm", sustained_factor=HOPPER_SUSTAINED),
        System("h200-141gb", "h200_sxm", sustained_factor=HOPPER_SUSTAINED),
        System("b200-192gb", "b200_sxm"),
        System("b300-288gb", "b300_sxm"),
        System("gb200-192gb", "gb200"),
        System("l40s-48gb", "l40s", all_reduce=("vllm", "0.22.0")),
        System("rtx-pro-6000-96gb", "rtx_pro_6000_server"),
    )
}
