"""Summary figures of a workload."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmserve_env.request_table import RequestTable
from llmserve_env.workloads.arrivals import Gamma, Off, OnOff, Poisson
from llmserve_env.workloads.sampling import sample
from llmserve_env.workloads.schedule import schedule
from llmserve_env.workloads.spec import SourceSpec, WorkloadSpec

_RATE_SEEDS = range(128)
_MIN_REQUESTS = 50_000
_MAX_EPISODES = 64


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """Offered load: rates in closed form or over fixed seeds, lengths and shares over a large fixed-seed sample."""

    mean_rps: float
    peak_rps: float
    """Highest expected rate of a second, over fixed seeds."""
    mean_prompt_tokens: float
    mean_output_tokens: float
    mean_acceptance: float
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    class_shares: dict[str, float]
    """Share of requests."""
    tenant_shares: dict[str, float]


def describe(spec: WorkloadSpec) -> WorkloadSummary:
    """Summary figures averaged over fixed seeds, so every call returns the same figures."""
    tables = _sample_tables(spec)
    num_requests = sum(map(len, tables))
    peak_rps, source_rps = _rates(spec)
    sampled_rps = num_requests / (len(tables) * spec.horizon_s)
    mean_rps = sampled_rps if any(source.sessions for source in spec.sources) else sum(source_rps)
    mean_prompt = _mean(tables, "prompt_tokens")
    mean_output = _mean(tables, "output_tokens")
    return WorkloadSummary(
        mean_rps=mean_rps,
        peak_rps=peak_rps,
        mean_prompt_tokens=mean_prompt,
        mean_output_tokens=mean_output,
        mean_acceptance=_mean(tables, "acceptance"),
        prompt_tokens_per_s=mean_rps * mean_prompt,
        output_tokens_per_s=mean_rps * mean_output,
        class_shares=_shares(tables, "priority", spec.class_names),
        tenant_shares=_shares(tables, "tenant", spec.tenants),
    )


def _sample_tables(spec: WorkloadSpec) -> list[RequestTable]:
    tables: list[RequestTable] = []
    while len(tables) < _MAX_EPISODES and sum(map(len, tables)) < _MIN_REQUESTS:
        tables.append(sample(spec, len(tables)))
    return tables


def _rates(spec: WorkloadSpec) -> tuple[float, list[float]]:
    """Peak over all sources, and the mean rate of each."""
    rates = np.array([schedule(spec, seed).rate_rps for seed in _RATE_SEEDS])
    sampled = rates.mean(axis=(0, 1))
    means = [_steady_rps(source) for source in spec.sources]
    means = [None if mean is None else mean * spec.rate_scale for mean in means]
    peak_rps = float(rates.sum(axis=2).max())
    return peak_rps, [float(s) if m is None else m for m, s in zip(means, sampled, strict=True)]


def _steady_rps(source: SourceSpec) -> float | None:
    """Mean rate of a stationary process; None if it depends on the horizon."""
    match source.arrivals:
        case Off():
            return 0.0
        case Poisson() | Gamma():
            return source.arrivals.rate_rps
        case OnOff(on_rps=on_rps, on_s=on_s, off_rps=off_rps, off_s=off_s):
            return (on_rps * on_s + off_rps * off_s) / (on_s + off_s)
    return None


def _mean(tables: list[RequestTable], column: str) -> float:
    """Mean over all requests; 0 if there are none."""
    values = np.concatenate([getattr(table, column) for table in tables])
    return float(values.mean()) if len(values) else 0.0


def _shares(tables: list[RequestTable], column: str, names: tuple[str, ...]) -> dict[str, float]:
    """Share of requests by name; 0 if there are none."""
    values = np.concatenate([getattr(table, column) for table in tables])
    counts = np.bincount(values, minlength=len(names)) / max(1, len(values))
    return dict(zip(names, counts.tolist(), strict=True))
