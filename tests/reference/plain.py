"""Plain inputs for the reference engine: a deployment, knobs and a request table with defaults."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llmserve_env.engine.costs import MAX_SPECULATION_DEPTH, NO_HOST, Curve, DraftCosts, GpuCosts, HostCosts, TierCosts
from llmserve_env.engine.fleet import Pool

from .inputs import NEVER


def linear_costs(
    overhead_ps: int = 0,
    per_sequence_ps: int = 0,
    per_decode_token_ps: int = 0,
    per_prefill_token_ps: int = 0,
    per_context_token_ps: int = 0,
    per_prefill_pair_ps: int = 0,
    **fields: object,
) -> GpuCosts:
    """Costs without knots, equal for all tiers; `fields` are those of `GpuCosts`."""
    tier = TierCosts(
        overhead_ps=overhead_ps,
        per_sequence_ps=per_sequence_ps,
        per_decode_token_ps=per_decode_token_ps,
        per_prefill_token_ps=per_prefill_token_ps,
        gemm=Curve((0, 1), (0, 0)),
        decode_attention=(Curve((0, 1), (0, per_context_token_ps)),) * (MAX_SPECULATION_DEPTH + 1),
        prefill_attention=Curve((0, 1), (0, per_prefill_pair_ps)),
        weight_bytes=0,
    )
    defaults: dict[str, object] = {
        "tiers": dict.fromkeys(range(3), tier),
        "draft": DraftCosts(overhead_ps=0, gemm=Curve((0, 1), (0, 0)), per_context_token_ps=0, weight_bytes=0),
        "memory_bytes": NEVER,
        "kv_bytes_per_token": 1,
        "activation_bytes_per_token": 0,
        "logits_bytes_per_sequence": 0,
        "weights_load_bytes_per_s": 10**12,
        "kv_transfer_bytes_per_s": 10**12,
        "price_usd_per_hour": 0.0,
    }
    return GpuCosts(**{**defaults, **fields})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class PlainDeployment:
    """One replica with four-token blocks, unless told otherwise."""

    costs: GpuCosts
    num_replicas: int = 1
    num_prefill_replicas: int = 0
    memory_limit_bytes: int = NEVER
    activation_reserve_bytes: int = 0
    warm_up_at_cap: bool = False
    block_tokens: int = 4
    max_running: int = 1024
    token_budget: int = 1024
    max_model_len: int = 4096
    long_prefill_threshold: int = 0
    chunked_prefill: bool = True
    reserve_full_prompt: bool = True
    watermark_fraction: float = 0.0
    prefix_caching: bool = False
    async_scheduling: bool = False
    draft_lookahead: bool = False
    waiting_room: tuple[int, ...] = (1000,) * 8
    bring_up_ps: int = 0
    restart_overhead_ps: int = 0
    host: HostCosts = NO_HOST
    graph_max_tokens: int = 512
    num_blocks_override: int | None = 1000
    pools: tuple[Pool, ...] = ()
    affinity_slack: int = -1


@dataclass(frozen=True, slots=True)
class PlainKnobs:
    """Knobs that do nothing special."""

    batch_cap: int = 1024
    kv_budget_fraction: float = 1.0
    speculation_depth: int = 0
    quantization_tier: int = 0
    prefill_decode_split: bool = False
    priority_routing: bool = False
    token_budget: int | None = None


@dataclass(frozen=True, slots=True)
class PlainRequests:
    """A request table; columns that are not given hold their neutral value."""

    arrival_at_ps: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    priority: NDArray[np.int64]
    patience_ps: NDArray[np.int64]
    acceptance: NDArray[np.float64]
    prefix_id: NDArray[np.int64]
    prefix_tokens: NDArray[np.int64]
    session_id: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Row:
    """One request of a hand-written table."""

    arrival_at_ps: int
    prompt_tokens: int
    output_tokens: int
    priority: int = 0
    patience_ps: int = NEVER
    acceptance: float = 0.0
    prefix_id: int = -1
    prefix_tokens: int = 0
    session_id: int = -1


def table(*rows: Row) -> PlainRequests:
    """The request table of these rows, which the caller has sorted by arrival."""

    def column(name: str) -> NDArray[np.int64]:
        return np.array([getattr(row, name) for row in rows], dtype=np.int64)

    return PlainRequests(
        arrival_at_ps=column("arrival_at_ps"),
        prompt_tokens=column("prompt_tokens"),
        output_tokens=column("output_tokens"),
        priority=column("priority"),
        patience_ps=column("patience_ps"),
        acceptance=np.array([row.acceptance for row in rows], dtype=np.float64),
        prefix_id=column("prefix_id"),
        prefix_tokens=column("prefix_tokens"),
        session_id=column("session_id"),
    )
