"""What an operator sees before a decision: a gateway's and Prometheus' figures, and the orchestrator's replicas."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from llmserve_env.arrays import Array


@dataclass(frozen=True, slots=True)
class PoolView:
    """One pool, as the orchestrator shows it now."""

    up: float
    booting: float
    waking: float
    draining: float
    asleep: float
    ordered_serving: float
    ordered_asleep: float
    refused: float
    """Replicas ordered in the last window that the cloud did not give."""
    failed: float
    """Launches that failed in the last window."""
    taken: float
    """Replicas that the cloud took away in the last window."""
    since_refused_s: float
    """Time since a replica was last refused or taken; the episode's length if that never happened."""


@dataclass(frozen=True, slots=True)
class MeteredPoolView(PoolView):
    """One pool of a task that shows the metrics of every pool; they are as old as those of the fleet."""

    queue: float
    """Requests that wait at its replicas, at the end of the window."""
    running: float
    kv_use: float
    """Mean share of the KV pool in use, over its replicas that serve."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Figures named by unit. Metrics are those of the window before the last one: a scrape and a query old."""

    time_s: float
    """Since the start of the episode."""
    time_of_day: float
    """0 to 1."""
    request_rps: float
    prompt_tps: float
    """Prompt tokens that arrived per second, those of the conversation so far included."""
    new_prompt_tps: float
    """Prompt tokens per second that no earlier turn had sent or received."""
    output_tps: float
    """Tokens generated per second."""
    session_start_rps: float
    open_sessions: float
    """Sessions that started and have not had their last turn; a gateway closes them when their client leaves."""
    queue: float
    """Requests that wait, at the end of the window, those of batch jobs not counted."""
    running: float
    kv_use: float
    """Mean share of the KV pool in use, over replicas that serve."""
    ttft_ms: float
    """Mean of the requests that finished in the window."""
    tpot_ms: float
    ttft_attainment: float
    """Share of the window's judged requests."""
    tpot_attainment: float
    attainment: float
    """Share of both, in the window."""
    attainment_so_far: float
    """In the episode."""
    batch_backlog: float
    """Jobs that wait to be admitted."""
    batch_running: float
    """Jobs that are admitted and unfinished."""
    batch_deadline_s: float
    """Until the first deadline of the backlog; the task's whole deadline when it is empty."""
    income_usd: float
    bill_usd: float
    credits_usd: float
    """All three so far."""
    batch_share: float
    token_budget: float
    """In force."""
    pools: tuple[PoolView, ...]

    @property
    def vector(self) -> Array:
        """All figures in the order of `feature_names`."""
        own = [getattr(self, name) for name in SCALARS]
        names = pool_fields(isinstance(self.pools[0], MeteredPoolView))
        return np.array([*own, *(getattr(pool, name) for pool in self.pools for name in names)], np.float64)


SCALARS = tuple(field.name for field in fields(Observation) if field.name != "pools")


def pool_fields(has_metrics: bool) -> tuple[str, ...]:
    """Figures of one pool, with its own metrics or without."""
    return tuple(field.name for field in fields(MeteredPoolView if has_metrics else PoolView))


def feature_names(pool_names: tuple[str, ...], has_metrics: bool) -> tuple[str, ...]:
    """Names of the figures in `Observation.vector`; `has_metrics` says whether pools show their own metrics."""
    return (*SCALARS, *(f"{pool}.{name}" for pool in pool_names for name in pool_fields(has_metrics)))
