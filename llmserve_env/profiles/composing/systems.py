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


SYSTEMS = {
    system.name: system
    for system in (
        System("a100-40gb", "a100_sxm", "0.14.0", memory_factor=2039 / 1555),
        System("a100-80gb", "a100_sxm", "0.14.0"),
        System("h100-80gb", "h100_sxm"),
        System("h200-141gb", "h200_sxm"),
        System("b200-192gb", "b200_sxm"),
        System("b300-288gb", "b300_sxm"),
        System("gb200-192gb", "gb200"),
        System("l40s-48gb", "l40s", all_reduce=("vllm", "0.22.0")),
        System("rtx-pro-6000-96gb", "rtx_pro_6000_server"),
    )
}
