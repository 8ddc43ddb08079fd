"""Options of a recorded vLLM engine, read from the description of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmserve_env.units import PS_PER_S

_WATERMARK_KEYS = ("watermark", "kv_watermark", "watermark_fraction", "kv_cache_watermark", "gpu_blocks_watermark")
_CHUNKED_PREFILL_KEYS = ("enable_chunked_prefill", "chunked_prefill", "chunked_prefill_enabled")
_ALLOWED_KEYS = {
    "max_num_seqs",
    "blocks",
    "mnbt",
    "policy",
    "async_scheduling",
    "enable_prefix_caching",
    "scheduler_reserve_full_isl",
    "long_prefill_token_threshold",
    "spec_k",
    "speculative_config",
    *_WATERMARK_KEYS,
    *_CHUNKED_PREFILL_KEYS,
}
# vLLM reserves slots for the drafts of a draft model, not for those of an n-gram lookup.
_LOOKAHEAD_OF_METHOD = {"ngram": False, "draft_model": True}


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Limits and switches of a recorded engine."""

    max_running: int
    num_blocks: int
    """Usable blocks, without the null block."""
    block_tokens: int
    token_budget: int
    max_model_len: int
    long_prefill_threshold: int
    priority_policy: bool
    async_scheduling: bool
    prefix_caching: bool
    reserve_full_prompt: bool
    chunked_prefill: bool
    watermark_fraction: float
    speculation_depth: int
    draft_lookahead: bool


@dataclass(frozen=True, slots=True)
class LimitChange:
    """Limits from the first iteration scheduled at or after `at_ps` on."""

    at_ps: int
    max_running: int
    token_budget: int


def require(condition: bool, description: dict[str, Any], message: str) -> None:
    """ValueError that names the run, unless the condition holds."""
    if not condition:
        raise ValueError(f"recorded run {description['run']!r}: {message}")


def engine_options(description: dict[str, Any]) -> EngineOptions:
    """The options of a run; ValueError for one that the simulator does not know."""
    engine = description["engine"]
    unknown = sorted(set(engine) - _ALLOWED_KEYS)
    require(not unknown, description, f"unknown engine options {unknown}; allowed are {sorted(_ALLOWED_KEYS)}")
    policy = engine.get("policy", "fcfs")
    require(policy in ("fcfs", "priority"), description, f"unknown policy {policy!r}; allowed are fcfs and priority")
    depth, draft_lookahead = _speculation(description)
    return EngineOptions(
        max_running=engine["max_num_seqs"],
        num_blocks=engine["blocks"] - 1,
        block_tokens=description["block_size"],
        token_budget=engine["mnbt"],
        max_model_len=description["max_model_len"],
        long_prefill_threshold=engine.get("long_prefill_token_threshold", 0),
        priority_policy=policy == "priority",
        async_scheduling=bool(engine.get("async_scheduling", description.get("async_scheduling", False))),
        prefix_caching=engine.get("enable_prefix_caching", True),
        reserve_full_prompt=engine.get("scheduler_reserve_full_isl", True),
        chunked_prefill=bool(_one_of(description, _CHUNKED_PREFILL_KEYS, True)),
        watermark_fraction=float(_one_of(description, _WATERMARK_KEYS, 0.0)),
        speculation_depth=depth,
        draft_lookahead=draft_lookahead,
    )


def limit_changes(description: dict[str, Any]) -> tuple[LimitChange, ...]:
    """Changes in order of time; a limit that a change does not name stays as it is."""
    engine = description["engine"]
    limits = {"max_num_seqs": engine["max_num_seqs"], "mnbt": engine["mnbt"]}
    changes = []
    for at_s, change in sorted(description.get("changes", []), key=lambda entry: entry[0]):
        unknown = sorted(set(change) - set(limits))
        require(not unknown, description, f"unknown limits {unknown} were changed; allowed are {sorted(limits)}")
        limits = {**limits, **change}
        changes.append(LimitChange(round(at_s * PS_PER_S), limits["max_num_seqs"], limits["mnbt"]))
    return tuple(changes)


def _one_of(description: dict[str, Any], names: tuple[str, ...], default: float) -> float:
    given = [name for name in names if name in description["engine"]]
    require(len(given) <= 1, description, f"{given} name one option; give one of them")
    return description["engine"][given[0]] if given else default


def _speculation(description: dict[str, Any]) -> tuple[int, bool]:
    engine = description["engine"]
    config = engine.get("speculative_config")
    if config is None:
        return int(engine.get("spec_k", 0) or 0), False
    method = config["method"]
    allowed = sorted(_LOOKAHEAD_OF_METHOD)
    require(method in _LOOKAHEAD_OF_METHOD, description, f"unknown draft method {method!r}; allowed are {allowed}")
    return int(config["num_speculative_tokens"]), _LOOKAHEAD_OF_METHOD[method]
