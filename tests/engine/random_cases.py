"""Random small deployments, request tables and knob sequences, for differential and fuzz tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmserve_env.engine.costs import (
    MAX_SPECULATION_DEPTH,
    Curve,
    DraftCosts,
    GpuCosts,
    HostCosts,
    HostTime,
    TierCosts,
)
from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.request_table import RequestTable
from llmserve_env.units import NEVER_PS, PS_PER_MS, PS_PER_S, PS_PER_US


@dataclass(frozen=True)
class Case:
    """One run: a deployment, its requests, and (window end, knobs) for each window."""

    deployment: Deployment
    requests: RequestTable
    windows: tuple[tuple[int, ServingKnobs], ...]
    seed: int


def _curve(rng: np.random.Generator, slope_ps: int, reach: int) -> Curve:
    if rng.random() < 0.3:
        return Curve((0, 1), (0, slope_ps))
    x = np.unique(np.concatenate([[0], rng.integers(1, reach, size=int(rng.integers(1, 5)))]))
    x = x if len(x) > 1 else np.array([0, reach])
    steps = [int(dx) * int(slope_ps * rng.uniform(0.2, 2.0)) for dx in np.diff(x)]
    start = int(rng.integers(0, 3)) * slope_ps
    return Curve(tuple(int(v) for v in x), tuple(int(v) for v in np.cumsum([start, *steps])))


def _tier(rng: np.random.Generator, weight_bytes: int) -> TierCosts:
    return TierCosts(
        overhead_ps=int(rng.integers(1, 8)) * PS_PER_MS + int(rng.integers(0, 999)),
        per_sequence_ps=int(rng.integers(0, 20_000_000)),
        per_decode_token_ps=int(rng.integers(0, 3)) * 7_000_001,
        per_prefill_token_ps=int(rng.integers(0, 3)) * 25_000_003,
        gemm=_curve(rng, 20_000_000, 200),
        decode_attention=tuple(_curve(rng, 40_000, 2_000) for _ in range(MAX_SPECULATION_DEPTH + 1)),
        prefill_attention=_curve(rng, 200_000, 5_000),
        weight_bytes=weight_bytes,
    )


TIER_LISTS = ((0, 1, 2), (0, 1, 2), (0, 3), (2, 0, 4, 1))
"""Tiers that profiles of random cases have, by number."""


def _draft(rng: np.random.Generator) -> DraftCosts:
    return DraftCosts(
        int(rng.integers(0, 2)) * PS_PER_MS,
        _curve(rng, 5_000_000, 100),
        int(rng.integers(0, 9_000)),
        int(rng.integers(0, 3_000)),
    )


def _costs(rng: np.random.Generator) -> GpuCosts:
    weights = int(rng.integers(1_000, 50_000))
    offered = TIER_LISTS[int(rng.integers(len(TIER_LISTS)))]
    return GpuCosts(
        tiers={number: _tier(rng, weights >> n) for n, number in enumerate(offered)},
        draft=_draft(rng) if rng.random() < 0.9 else None,
        memory_bytes=0,
        kv_bytes_per_token=int(rng.integers(1, 40)),
        activation_bytes_per_token=int(rng.integers(0, 30)),
        logits_bytes_per_sequence=int(rng.integers(0, 60)),
        weights_load_bytes_per_s=int(rng.integers(30_000, 1_000_000)),
        kv_transfer_bytes_per_s=int(rng.integers(20_000, 9_000_000)),
        price_usd_per_hour=1.0,
    )


def _host(rng: np.random.Generator) -> HostCosts:
    """A host as slow as the GPU, a little slower or a little faster; sometimes one that takes no time."""
    if rng.random() < 0.4:
        return HostCosts()

    def time() -> HostTime:
        return HostTime(int(rng.integers(0, 12)) * PS_PER_MS, int(rng.integers(0, 2_000)) * PS_PER_US)

    delays = [int(rng.integers(0, 9)) * PS_PER_MS for _ in range(3)]
    return HostCosts(delays[0], delays[1], time(), time(), time(), delays[2], time(), time())


def _deployment(rng: np.random.Generator) -> Deployment:
    costs = _costs(rng)
    block_tokens = int(rng.choice([2, 4, 16]))
    blocks = int(rng.integers(12, 200))
    fixed = max(t.weight_bytes for t in costs.tiers.values()) + costs.draft_bytes
    reserve = int(rng.integers(0, 3_000))
    by_memory = rng.random() < 0.5
    budget = int(rng.choice([16, 48, 200]))
    max_len = int(rng.choice([150, 400]))
    chunked = bool(rng.random() < 0.9)
    return Deployment(
        costs=costs,
        num_replicas=int(rng.choice([1, 1, 2, 4])),
        num_prefill_replicas=int(rng.choice([0, 0, 1, 2])),
        memory_limit_bytes=fixed + reserve + blocks * block_tokens * costs.kv_bytes_per_token if by_memory else 2**60,
        activation_reserve_bytes=reserve,
        warm_up_at_cap=bool(rng.random() < 0.3),
        block_tokens=block_tokens,
        token_budget=budget if chunked else max_len,
        max_model_len=max_len,
        long_prefill_threshold=int(rng.choice([0, 0, 7, 30])),
        chunked_prefill=chunked,
        reserve_full_prompt=bool(rng.random() < 0.7),
        watermark_fraction=float(rng.choice([0.0, 0.0, 0.05, 0.2])),
        prefix_caching=bool(rng.random() < 0.3),
        async_scheduling=bool(rng.random() < 0.3),
        draft_lookahead=bool(rng.random() < 0.5),
        waiting_room=tuple(int(v) for v in rng.choice([2, 5, 1000], size=3)),
        bring_up_ps=int(rng.integers(0, 400)) * PS_PER_MS,
        restart_overhead_ps=int(rng.integers(0, 100)) * PS_PER_MS,
        host=_host(rng),
        graph_max_tokens=int(rng.choice([0, 8, 40, 512])),
        num_blocks_override=None if by_memory else blocks,
    )


def _requests(rng: np.random.Generator, deployment: Deployment, horizon_ps: int) -> RequestTable:
    n = int(rng.integers(1, 60))
    arrivals = np.sort(rng.integers(0, horizon_ps, size=n))
    if rng.random() < 0.3:
        arrivals = np.sort(rng.choice(arrivals, size=n))
    prompt = (
        rng.integers(1, deployment.max_model_len // 2, size=n) if rng.random() < 0.5 else rng.integers(1, 30, size=n)
    )
    output = (
        rng.integers(1, deployment.max_model_len // 2, size=n) if rng.random() < 0.5 else rng.integers(1, 20, size=n)
    )
    prefix_id = rng.integers(-1, 3, size=n)
    return RequestTable.of(
        arrivals,
        prompt,
        output,
        priority=rng.integers(0, 3, size=n),
        ttft_slo_ps=rng.integers(1, 500, size=n) * PS_PER_MS,
        patience_ps=np.where(rng.random(n) < 0.5, NEVER_PS, rng.integers(1, 2_000, size=n) * PS_PER_MS),
        acceptance=rng.random(n),
        prefix_id=prefix_id,
        prefix_tokens=np.where(prefix_id >= 0, prompt // 2, 0),
        session_id=rng.integers(-1, 5, size=n),
    )


def _knobs(rng: np.random.Generator, deployment: Deployment) -> ServingKnobs:
    # Without chunked prefill a smaller budget would leave prompts waiting for ever.
    tiers = list(deployment.costs.tiers)
    is_lowered = deployment.chunked_prefill and rng.random() < 0.4
    return ServingKnobs(
        batch_cap=int(rng.choice([1, 2, 4, 9, 64])),
        kv_budget_fraction=float(rng.choice([0.1, 0.35, 0.7, 1.0])),
        speculation_depth=int(rng.choice([0, 0, 0, 1, 3, 8])) if deployment.costs.draft else 0,
        quantization_tier=int(rng.choice([tiers[0], tiers[0], *tiers])),
        prefill_decode_split=bool(rng.random() < 0.4),
        priority_routing=bool(rng.random() < 0.4),
        token_budget=int(rng.integers(1, deployment.token_budget + 1)) if is_lowered else None,
    )


def random_knobs(seed: int, deployment: Deployment) -> ServingKnobs:
    """Knobs that a deployment accepts."""
    return _knobs(np.random.default_rng(seed), deployment)


def random_case(seed: int) -> Case:
    """A case that depends on nothing but its seed."""
    rng = np.random.default_rng(seed)
    deployment = _deployment(rng)
    horizon_ps = int(rng.integers(1, 6)) * PS_PER_S
    requests = _requests(rng, deployment, horizon_ps)
    windows = []
    end, knobs = 0, _knobs(rng, deployment)
    for _ in range(int(rng.integers(2, 14))):
        end += int(rng.integers(1, 1_200)) * PS_PER_MS
        if rng.random() < 0.6:
            knobs = _knobs(rng, deployment)
        windows.append((end, knobs))
    windows.append((end + int(rng.integers(0, 60)) * PS_PER_S, knobs))
    return Case(deployment, requests, tuple(windows), int(rng.integers(0, 2**32)))
