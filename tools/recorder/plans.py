"""Which engines are started and which runs each of them serves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Run:
    """One recorded run of a started engine."""

    name: str
    traffic: str
    seed: int
    duration_s: float
    options: dict[str, Any] = field(default_factory=dict)
    changes: tuple[tuple[float, dict[str, int]], ...] = ()
    """(second, {batch_cap | token_budget | blocks}): limits changed while the run goes on."""


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """An engine and its runs; `model` names a folder of `tools/recorder/models`."""

    name: str
    model: str
    runs: tuple[Run, ...]
    quantization: str | None = None
    max_num_seqs: int = 128
    max_num_batched_tokens: int = 2_048
    max_model_len: int = 16_384
    gpu_memory_utilization: float = 0.9


H200_PLANS = (
    EnginePlan(
        "bf16_small",
        "llama-3-8b",
        (
            Run("s_light_1", "light", 11, 40),
            Run("s_burst_1", "burst", 12, 60),
            Run("s_mixed_1", "mixed", 13, 40, {"rate_rps": 8.0}),
            Run("s_chat_1", "chat", 14, 40),
            Run("s_fixed_1", "fixed", 15, 30, {"rate_rps": 12.0}),
            Run("s_waves_1", "waves", 16, 30),
            Run("s_burst_kv", "burst", 17, 45, {}, ((0.0, {"blocks": 3_000}),)),
            Run(
                "s_burst_turned",
                "burst",
                18,
                45,
                {},
                ((10.0, {"batch_cap": 48}), (22.0, {"batch_cap": 128, "token_budget": 512})),
            ),
        ),
    ),
    EnginePlan(
        "bf16_large",
        "llama-3-8b",
        (
            Run("l_burst_1", "burst", 21, 60, {"rate_rps": 40.0, "peak_rps": 110.0}),
            Run("l_mixed_1", "mixed", 22, 40, {"rate_rps": 8.0}),
            Run("l_chat_1", "chat", 23, 40, {"rate_rps": 30.0}),
            Run("l_waves_1", "waves", 24, 40, {"sizes": [16, 64, 128, 256, 512]}),
            Run("l_over_1", "chat", 25, 30, {"rate_rps": 60.0}),
        ),
        max_num_seqs=1_024,
        max_num_batched_tokens=8_192,
    ),
    EnginePlan(
        "fp8_small",
        "llama-3-8b",
        (
            Run("f_light_1", "light", 31, 40),
            Run("f_burst_1", "burst", 32, 60),
            Run("f_mixed_1", "mixed", 33, 40, {"rate_rps": 8.0}),
            Run("f_chat_1", "chat", 34, 40),
            Run("f_waves_1", "waves", 35, 30),
        ),
        quantization="fp8",
    ),
)

CAPACITY_PLAN = EnginePlan(
    "capacity",
    "llama-3-8b",
    (
        *(Run(f"c_chat_{rate}", "chat", 41, 30, {"rate_rps": float(rate)}) for rate in (12, 14, 16, 18, 20)),
        *(Run(f"c_light_{rate}", "light", 42, 30, {"rate_rps": float(rate)}) for rate in (42, 47, 52, 57, 62)),
    ),
    max_num_seqs=512,
    max_num_batched_tokens=8_192,
)
"""Two workloads at a ladder of rates around the predicted capacity; `python -m benchmarks.gpu_capacity` compares."""
EXPERTS_PLAN = EnginePlan(
    "experts",
    "qwen3-30b-a3b",
    (
        Run("q_light_1", "light", 51, 30),
        Run("q_burst_1", "burst", 52, 45),
        Run("q_mixed_1", "mixed", 53, 30, {"rate_rps": 8.0}),
        Run("q_chat_1", "chat", 54, 30),
    ),
)
"""A mixture of experts, for profiles composed from kernel timings."""
PLANS = (*H200_PLANS, CAPACITY_PLAN, EXPERTS_PLAN)
