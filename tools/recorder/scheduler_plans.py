"""Runs of vLLM's scheduler on a virtual clock, and of the whole engine on a CPU: options and traffic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

COST = {"base": 0.007, "per_dec": 1.6e-05, "per_ctx": 3e-08, "per_pf": 3e-05, "per_pfwork": 1.5e-10}
"""Seconds of an iteration on the virtual clock: constant, per decode token, context token, prefill token and pair."""


@dataclass(frozen=True, slots=True)
class SchedulerRun:
    """One run of a scheduler that starts empty; `engine` holds options in the words of the recorded files."""

    name: str
    engine: Mapping[str, Any]
    traffic: Mapping[str, Any]
    """Keyword arguments of the traffic kind, with `kind`, `seed` and `duration_s`."""
    changes: tuple[tuple[float, dict[str, int]], ...] = ()
    """(second, {max_num_seqs | mnbt}): limits changed while the run goes on."""
    acceptance: float = 0.0
    """Probability that a draft is accepted, on the virtual clock."""
    max_model_len: int = 4_096
    block_size: int = 16
    cost: Mapping[str, float] = field(default_factory=lambda: COST)


def _engine(max_num_seqs: int = 64, blocks: int = 8_193, mnbt: int = 2_048, **options: Any) -> dict[str, Any]:
    return {"max_num_seqs": max_num_seqs, "blocks": blocks, "mnbt": mnbt, **options}


def _uniform(seed: int, rate_rps: float, duration_s: float, **options: Any) -> dict[str, Any]:
    return {"kind": "uniform", "seed": seed, "rate_rps": rate_rps, "duration_s": duration_s, **options}


def _pulses(seed: int, duration_s: float, **options: Any) -> dict[str, Any]:
    return {"kind": "pulses", "seed": seed, "duration_s": duration_s, **options}


def _draft(depth: int) -> dict[str, Any]:
    return {"speculative_config": {"method": "draft_model", "num_speculative_tokens": depth}}


def _ngram(depth: int) -> dict[str, Any]:
    lookup = {"prompt_lookup_max": 4, "prompt_lookup_min": 1}
    return {"speculative_config": {"method": "ngram", "num_speculative_tokens": depth, **lookup}}


_URGENT = {"high_priority_share": 0.3}
_SHARED = {"num_prefixes": 6, "prefix_tokens": 500, "prompt_tokens": [32, 400], "output_tokens": [16, 160]}
_NO_CACHE = {"enable_prefix_caching": False}
_ASYNC = {"async_scheduling": True}
_TURNED = (
    (3.0, {"max_num_seqs": 12}),
    (7.0, {"max_num_seqs": 96, "mnbt": 512}),
    (11.0, {"max_num_seqs": 48, "mnbt": 2_048}),
)

VIRTUAL_RUNS = (
    SchedulerRun("cap8", _engine(8), _uniform(101, 8, 12)),
    SchedulerRun("cap64_light", _engine(64), _uniform(102, 4, 15)),
    SchedulerRun("cap256_heavy", _engine(256), _uniform(103, 30, 8)),
    SchedulerRun("cap512_pulses", _engine(512), _pulses(104, 12, size=90)),
    SchedulerRun("budget256", _engine(128, mnbt=256), _uniform(105, 10, 12)),
    SchedulerRun("budget8192", _engine(128, mnbt=8_192), _uniform(106, 15, 10, prompt_tokens=[512, 3_500])),
    SchedulerRun(
        "threshold512", _engine(64, long_prefill_token_threshold=512), _uniform(107, 6, 12, prompt_tokens=[64, 3_000])
    ),
    SchedulerRun(
        "unchunked",
        _engine(64, mnbt=4_096, enable_chunked_prefill=False),
        _uniform(108, 10, 12, prompt_tokens=[64, 2_500]),
    ),
    SchedulerRun("fcfs_two_classes", _engine(16, policy="fcfs"), _uniform(109, 20, 10, **_URGENT)),
    SchedulerRun("priority", _engine(16, policy="priority"), _uniform(109, 20, 10, **_URGENT)),
    SchedulerRun("priority_small_pool", _engine(64, 401, policy="priority"), _uniform(110, 12, 10, **_URGENT)),
    SchedulerRun("small_pool", _engine(128, 513), _uniform(111, 12, 10)),
    SchedulerRun("small_pool_uncached", _engine(128, 513, **_NO_CACHE), _uniform(111, 12, 10)),
    SchedulerRun(
        "small_pool_ungated", _engine(128, 513, mnbt=256, scheduler_reserve_full_isl=False), _uniform(111, 12, 10)
    ),
    SchedulerRun("watermark", _engine(128, 513, watermark=0.05), _uniform(111, 12, 10)),
    SchedulerRun("shared_prefixes", _engine(64), _uniform(112, 15, 10, **_SHARED)),
    SchedulerRun("shared_prefixes_small_pool", _engine(64, 401), _uniform(113, 15, 10, **_SHARED)),
    SchedulerRun("ngram2", _engine(64, **_ngram(2)), _uniform(114, 10, 10), acceptance=0.6),
    SchedulerRun(
        "ngram4_small_pool", _engine(64, 301, **_NO_CACHE, **_ngram(4)), _uniform(115, 16, 10), acceptance=0.7
    ),
    SchedulerRun(
        "draft3_small_pool",
        _engine(64, 301, mnbt=8_192, **_NO_CACHE, **_draft(3)),
        _uniform(116, 16, 10),
        acceptance=0.7,
    ),
    SchedulerRun("async_draft2", _engine(64, **_ASYNC, **_draft(2)), _uniform(123, 10, 10), acceptance=0.6),
    SchedulerRun(
        "async_draft3_small_pool",
        _engine(64, 301, mnbt=8_192, **_ASYNC, **_draft(3)),
        _uniform(124, 16, 10),
        acceptance=0.7,
    ),
    SchedulerRun("async", _engine(64, **_ASYNC), _uniform(117, 10, 12)),
    SchedulerRun("async_small_pool", _engine(128, 401, **_ASYNC), _uniform(118, 12, 10)),
    SchedulerRun("async_priority_pulses", _engine(48, 601, **_ASYNC, policy="priority"), _pulses(119, 12, **_URGENT)),
    SchedulerRun("async_shared_prefixes", _engine(64, **_ASYNC), _uniform(120, 15, 10, **_SHARED)),
    SchedulerRun("cap_and_budget_turned", _engine(96), _pulses(121, 16, size=60), _TURNED),
)


def _cpu_run(name: str, engine: dict[str, Any], traffic: dict[str, Any]) -> SchedulerRun:
    return SchedulerRun(name, engine, traffic, max_model_len=2_048, block_size=32)


def _cpu_engine(max_num_seqs: int = 16, blocks: int = 2_049, mnbt: int = 512, **options: Any) -> dict[str, Any]:
    return _engine(max_num_seqs, blocks, mnbt, **options)


_CHAT = {"prompt_tokens": [32, 512], "output_tokens": [16, 128]}
_LONG = {"prompt_tokens": [64, 1_500], "output_tokens": [16, 96]}
_CHATTY = {"prompt_tokens": [32, 400], "output_tokens": [64, 400]}
_TEMPLATES = {"num_prefixes": 4, "prefix_tokens": 320, "prompt_tokens": [32, 300], "output_tokens": [16, 96]}

CPU_RUNS = (
    _cpu_run("cpu_cap4", _cpu_engine(4), _uniform(201, 14, 9, **_CHAT)),
    _cpu_run("cpu_cap16_light", _cpu_engine(16), _uniform(202, 5, 24, **_CHAT)),
    _cpu_run("cpu_cap16_heavy", _cpu_engine(16), _uniform(203, 25, 5, **_CHAT)),
    _cpu_run("cpu_cap64", _cpu_engine(64), _uniform(204, 12, 10, **_CHAT)),
    _cpu_run("cpu_budget128", _cpu_engine(16, mnbt=128), _uniform(205, 8, 10, **_LONG)),
    _cpu_run("cpu_budget2048", _cpu_engine(16, mnbt=2_048), _uniform(206, 8, 10, **_LONG)),
    _cpu_run(
        "cpu_threshold256", _cpu_engine(16, mnbt=2_048, long_prefill_token_threshold=256), _uniform(207, 6, 13, **_LONG)
    ),
    _cpu_run("cpu_small_pool", _cpu_engine(64, 65), _uniform(208, 10, 9, **_CHATTY)),
    _cpu_run("cpu_small_pool_uncached", _cpu_engine(64, 65, **_NO_CACHE), _uniform(209, 10, 9, **_CHATTY)),
    _cpu_run(
        "cpu_small_pool_ungated",
        _cpu_engine(64, 65, mnbt=128, scheduler_reserve_full_isl=False),
        _uniform(210, 10, 9, **_CHATTY),
    ),
    _cpu_run("cpu_watermark", _cpu_engine(64, 97, watermark=0.08), _uniform(211, 8, 11, **_CHATTY)),
    _cpu_run("cpu_fcfs_two_classes", _cpu_engine(16, policy="fcfs"), _uniform(212, 20, 6, **_URGENT, **_CHAT)),
    _cpu_run("cpu_priority", _cpu_engine(16, policy="priority"), _uniform(212, 20, 6, **_URGENT, **_CHAT)),
    _cpu_run("cpu_shared_prefixes", _cpu_engine(32), _uniform(213, 12, 10, **_TEMPLATES)),
    _cpu_run("cpu_ngram2", _cpu_engine(16, **_ngram(2)), _uniform(214, 10, 9, **_CHAT)),
)
