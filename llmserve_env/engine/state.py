"""The engine's arrays: everything that changes, for one environment or many, and the tables the kernels read.

Every array has the environment as its first axis: a snapshot is a handful of copies, and a vector one compiled call.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.costs import MAX_SPECULATION_DEPTH, NO_HOST, Curve, DraftCosts, TierCosts
from llmserve_env.engine.deployment import MAX_CLASSES, MAX_TOKEN_BUDGET, Deployment
from llmserve_env.engine.fleet import CAPACITY_DTYPE, POOL_DTYPE, fill_pools
from llmserve_env.engine.knobs import NAMES, default_knobs
from llmserve_env.engine.layout import (
    DEPLOYMENT_DTYPE,
    ENTRY_DTYPE,
    ENVIRONMENT_DTYPE,
    KNOTS_PER_CURVE,
    PROGRESS_DTYPE,
    REPLICA_DTYPE,
    REQUEST_DTYPE,
    WINDOW_DTYPE,
)
from llmserve_env.engine.log_layout import LOG_DTYPE
from llmserve_env.engine.tiers import NUM_TIERS
from llmserve_env.errors import InvariantViolation
from llmserve_env.units import NEVER_PS


class EngineTables(NamedTuple):
    """What the kernels only read."""

    deployment: Array
    """One record; its `gemm` is [tier or draft, tokens], its `curves` [tier and curve, (x, y, slope), knot]."""
    recorded: Array
    """[request, output position]: draft verdicts of a recorded run, empty to draw them."""


class EngineState(NamedTuple):
    """Everything that changes, for E environments, and their requests; `kernels/view.py` says what each array holds."""

    environment: Array
    replicas: Array
    progress: Array
    window: Array
    entries: Array
    buckets: Array
    block_table: Array
    pools: Array
    log: Array
    requests: Array
    launch_delays: Array
    capacity: Array


MUTABLE_FIELDS = ("environment", "replicas", "progress", "window", "entries", "buckets", "block_table", "pools")


def records(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Zeroed records; with the JIT off they also answer to attribute access, as they do in compiled code."""
    array: Array = np.zeros(shape, dtype)
    return array.view(np.recarray) if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0") else array


DEPLOYMENT_FIELDS = (
    "num_replicas",
    "num_prefill_replicas",
    "affinity_slack",
    "max_model_len",
    "long_prefill_threshold",
    "chunked_prefill",
    "reserve_full_prompt",
    "watermark_fraction",
    "prefix_caching",
    "async_scheduling",
    "draft_lookahead",
    "block_tokens",
    "block_bytes",
    "memory_limit_bytes",
    "activation_reserve_bytes",
    "bring_up_ps",
    "restart_overhead_ps",
    "warm_up_at_cap",
    "graph_max_tokens",
)
COSTS_FIELDS = (
    "activation_bytes_per_token",
    "logits_bytes_per_sequence",
    "kv_bytes_per_token",
    "kv_transfer_bytes_per_s",
    "weights_load_bytes_per_s",
)
"""Attributes of `Deployment` and of `GpuCosts` that enter the kernels' record unchanged, under the same name."""


NO_CURVE = Curve((0, 1), (0, 0))
NO_TIER = TierCosts(0, 0, 0, 0, NO_CURVE, (NO_CURVE,) * (MAX_SPECULATION_DEPTH + 1), NO_CURVE, 0)
NO_DRAFT = DraftCosts(0, NO_CURVE, 0, 0)
"""Stands in the kernels' tables for tiers and drafts that a deployment lacks and never runs."""


def deployment_values(deployment: Deployment, step_every_iteration: bool) -> dict[str, Any]:
    """Every field of DEPLOYMENT_DTYPE and its value."""
    costs, host, rooms = deployment.costs, deployment.host, deployment.waiting_room
    tiers = [costs.tiers.get(number, NO_TIER) for number in range(NUM_TIERS)]
    draft = costs.draft or NO_DRAFT
    attention_curves = [c for tier in tiers for c in (*tier.decode_attention, tier.prefill_attention)]
    return {
        **{name: getattr(deployment, name) for name in DEPLOYMENT_FIELDS},
        **{name: getattr(costs, name) for name in COSTS_FIELDS},
        "block_shift": deployment.block_tokens.bit_length() - 1,
        "weight_bytes": [tier.weight_bytes for tier in tiers],
        "draft_bytes": draft.weight_bytes,
        "num_blocks_override": -1 if deployment.num_blocks_override is None else deployment.num_blocks_override,
        "num_pools": len(deployment.pools),
        "has_prefill_pool": any(pool.role == "prefill" for pool in deployment.pools),
        "num_classes": len(rooms),
        "waiting_room": rooms + (0,) * (MAX_CLASSES - len(rooms)),
        "step_every_iteration": step_every_iteration,
        "has_host": host != NO_HOST,
        "front_end_ps": host.front_end_ps,
        "answer_ps": host.answer_ps,
        "admission_ps": host.per_admission_ps,
        "launch_constants": [
            (time.base_ps, time.per_sequence_ps) for time in (host.full_graph, host.piecewise_graph, host.no_graph)
        ],
        "output_constants": (host.output.base_ps, host.output.per_sequence_ps),
        "sampling_constants": (host.sampling.base_ps, host.sampling.per_sequence_ps),
        "tier_constants": [
            (t.overhead_ps, t.per_sequence_ps, t.per_decode_token_ps, t.per_prefill_token_ps) for t in tiers
        ],
        "draft_constants": (draft.overhead_ps, draft.per_context_token_ps),
        "gemm": [_dense(curve, MAX_TOKEN_BUDGET + 1) for curve in (*(tier.gemm for tier in tiers), draft.gemm)],
        "curves": [_segments(curve, KNOTS_PER_CURVE) for curve in attention_curves],
    }


def engine_tables(deployment: Deployment, step_every_iteration: bool) -> EngineTables:
    """The deployment and its cost curves as arrays."""
    record = records((1,), DEPLOYMENT_DTYPE)
    fill_record(record[0], deployment_values(deployment, step_every_iteration))
    return EngineTables(record, np.zeros((0, 0), np.uint8))


def fill_record(row: Any, values: dict[str, Any]) -> None:
    """Write every field of a record; a name that the record or the values lack is an error."""
    different = set(row.dtype.names) ^ set(values)
    if different:
        raise InvariantViolation(
            f"these fields are in the record or in the values, but not in both: {sorted(different)}"
        )
    for name, value in values.items():
        row[name] = value


def cache_shape(deployment: Deployment) -> tuple[int, int]:
    """(blocks with an identity, block-table entries per request); nothing without prefix caching."""
    if not deployment.prefix_caching:
        return 0, 0
    blocks = max(deployment.num_blocks(1.0, tier, False) for tier in deployment.costs.tiers)
    return blocks, -(-deployment.max_model_len // deployment.block_tokens) + 1


def _segments(curve: Curve, knots: int) -> Array:
    table = np.zeros((3, knots), np.int64)
    table[0] = NEVER_PS
    n = len(curve.x)
    table[0, :n], table[1, :n] = curve.x, curve.ps
    table[2, : n - 1] = [
        (y1 - y0) // (x1 - x0) for x0, x1, y0, y1 in zip(curve.x, curve.x[1:], curve.ps, curve.ps[1:], strict=False)
    ]
    table[2, n - 1] = table[2, n - 2]
    return table


def _dense(curve: Curve, size: int) -> Array:
    x, y, slope = _segments(curve, len(curve.x) + 1)
    at = np.arange(size)
    i = np.maximum(np.searchsorted(x, at, side="right") - 1, 0)
    values: Array = y[i] + slope[i] * (at - x[i])
    values[0] = 0
    return values


def new_state(
    deployment: Deployment,
    num_environments: int,
    max_requests: int,
    log_rows: int = 0,
    script_shape: tuple[int, int] = (1, 0),
) -> EngineState:
    """Zeroed arrays; `load_requests` makes an environment ready. A script has (launches per pool, changes)."""
    e, r = num_environments, deployment.max_num_replicas
    blocks, per_request = cache_shape(deployment)
    num_buckets = 2 << max(blocks - 1, 1).bit_length() if blocks else 0
    return EngineState(
        environment=records((e,), ENVIRONMENT_DTYPE),
        replicas=records((e, r), REPLICA_DTYPE),
        progress=records((e, max_requests), PROGRESS_DTYPE),
        window=records((e,), WINDOW_DTYPE),
        entries=records((e, r, blocks), ENTRY_DTYPE),
        buckets=np.full((e, r, num_buckets), -1, np.int32),
        block_table=np.zeros((e, r, deployment.max_running, per_request), np.int32),
        pools=records((e, len(deployment.pools)), POOL_DTYPE),
        log=records((log_rows,), LOG_DTYPE),
        requests=records((e, max_requests), REQUEST_DTYPE),
        launch_delays=np.ones((e, len(deployment.pools), script_shape[0]), np.int64),
        capacity=records((e, script_shape[1]), CAPACITY_DTYPE),
    )


def pending_progress() -> Array:
    """One record of a request that has not arrived."""
    row = records((1,), PROGRESS_DTYPE)
    unset = ("first_token_at_ps", "finished_at_ps", "last_token_at_ps", "handoff_at_ps", "next", "previous", "home")
    for name in unset:
        row[name] = -1
    row["is_fresh"] = 1
    return row


def pristine_state(deployment: Deployment, max_requests: int) -> EngineState:
    """One environment at time zero without requests: what loading an episode copies."""
    state = new_state(deployment, 1, max_requests)
    environment = state.environment[0]
    environment["reloading"] = environment["handoff_head"] = -1
    for name, value in zip(NAMES, default_knobs(deployment), strict=True):
        environment[name] = value
    bytes_of(state.progress).reshape(-1, PROGRESS_DTYPE.itemsize)[:] = bytes_of(pending_progress())
    replicas = state.replicas[0]
    for name in ("start_at_ps", "end_at_ps", "queued_end_at_ps", "lru_head", "lru_tail", "head", "tail"):
        replicas[name] = -1
    replicas["next_deadline_at_ps"] = NEVER_PS
    replicas["pool_is_stale"] = replicas["may_queue"] = 1
    replicas["in_service"][: deployment.num_replicas] = 1
    replicas["tier"] = deployment.costs.first_tier
    replicas["is_prefill"][deployment.num_replicas :] = 1
    environment["fleet_due_at_ps"] = NEVER_PS
    fill_pools(state.pools[0], replicas, deployment.pools)
    rows = replicas["batch"]["table_row"]
    rows[:] = np.arange(rows.shape[1])
    return state


def bytes_of(array: Array) -> Array:
    """The array's memory: copying records field by field is thirty times slower."""
    return array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
