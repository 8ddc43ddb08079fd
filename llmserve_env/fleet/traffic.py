"""One episode's world: requests, batch jobs and what the cloud does, fixed before the first decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.fleet import CAPACITY_DTYPE, FleetScript
from llmserve_env.fleet.sections import BatchSpec, LengthSpec, PriceSpec
from llmserve_env.fleet.series import RateSeries
from llmserve_env.fleet.sessions import Turns, sample_turns
from llmserve_env.fleet.zones import STEP_S, sample_launches, sample_zones
from llmserve_env.request_table import RequestTable
from llmserve_env.rng import JITTER_STREAM, POLICY_STREAM, stream
from llmserve_env.units import PS_PER_S, ms_to_ps, s_to_ps

if TYPE_CHECKING:
    from llmserve_env.fleet.task import FleetTask

LEAD_WINDOWS = 10
"""Windows played before an episode's first decision, so that it starts with a fleet under way; they are not billed."""
PER_MILLION = 1e-6


@dataclass(frozen=True, slots=True)
class BatchJobs:
    """Work that may wait, in order of arrival, which is that of deadlines too."""

    arrival_s: Array
    deadline_s: Array
    prompt_tokens: Array
    output_tokens: Array
    value_usd: Array

    def __len__(self) -> int:
        return len(self.arrival_s)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What happens in one episode, whatever is decided. Times count from the start of the lead, in seconds.

    Arrays per window have `lead_windows` more entries than the episode has steps.
    """

    series: str
    start_s: float
    """Of the episode, in the series."""
    seed: int
    lead_windows: int
    window_s: float
    requests: RequestTable
    """Of clients who wait; priority 0."""
    value_usd: Array
    """What each request earns if its promise is kept."""
    jobs: BatchJobs
    script: FleetScript
    initial: tuple[int, ...]
    """Replicas that serve at the start of the lead, per pool."""
    arrivals: Array
    """Requests per window; the arrays below are per window too."""
    prompt_tokens: Array
    new_prompt_tokens: Array
    output_tokens: Array
    income_usd: Array
    """What the window's requests earn if all promises are kept."""
    session_starts: Array
    open_sessions: Array
    """At the end of the window."""
    batch_arrivals: Array
    batch_prompt_tokens: Array
    batch_output_tokens: Array
    capacity: Array
    """[window, pool]: replicas that the cloud would give, at the start of the window."""
    launch_delays_s: Array
    """[pool, launch], negative for a launch that fails after so long."""

    @property
    def num_windows(self) -> int:
        return len(self.arrivals)


def sample_traffic(task: FleetTask, series: RateSeries, start_s: float, seed: int) -> Traffic:
    """The world of the episode of `task` that begins at `start_s` of the series."""
    windows = LEAD_WINDOWS + task.steps
    length_s, lead_s = windows * task.window_s, LEAD_WINDOWS * task.window_s
    spec = task.replica
    turns = sample_turns(task.traffic_spec, series, start_s - lead_s, length_s, spec.max_model_len, seed)
    jobs = _sample_jobs(task.batch, task.prices, series, start_s - lead_s, length_s, seed)
    random = stream(seed, POLICY_STREAM)
    delays_s = sample_launches(tuple(pool.boot for pool in task.pools), random)
    up = sample_zones(task.zones, length_s, random) if task.zones else np.zeros((0, 0), bool)
    load = float(series.at(np.array([start_s]))[0][0])
    initial = tuple(
        int(np.clip(np.ceil(pool.usual_replicas * load), pool.min_replicas, pool.max_replicas)) for pool in task.pools
    )
    value = _values(turns, task.prices)
    window = (turns.arrival_s // task.window_s).astype(np.int64)
    starts = turns.session_start_s

    def per_window(weights: Array | None = None) -> Array:
        total: Array = np.bincount(window, weights, minlength=windows).astype(np.float64)
        return total

    job_window = (jobs.arrival_s // task.window_s).astype(np.int64)
    ends = (np.arange(windows) + 1) * task.window_s
    is_seen = (starts >= 0.0) & (starts < length_s)
    return Traffic(
        series=series.name,
        start_s=start_s,
        seed=seed,
        lead_windows=LEAD_WINDOWS,
        window_s=task.window_s,
        requests=_table(turns, task),
        value_usd=value,
        jobs=jobs,
        script=FleetScript(np.round(delays_s * PS_PER_S).astype(np.int64), _changes(task, up), initial),
        initial=initial,
        arrivals=per_window(),
        prompt_tokens=per_window(turns.prompt_tokens),
        new_prompt_tokens=per_window(turns.prompt_tokens - turns.history_tokens),
        output_tokens=per_window(turns.output_tokens),
        income_usd=per_window(value),
        session_starts=np.bincount((starts[is_seen] // task.window_s).astype(np.int64), minlength=windows).astype(
            float
        ),
        open_sessions=_count_until(starts, ends) - _count_until(turns.session_end_s, ends),
        batch_arrivals=np.bincount(job_window, minlength=windows).astype(float),
        batch_prompt_tokens=np.bincount(job_window, jobs.prompt_tokens, minlength=windows),
        batch_output_tokens=np.bincount(job_window, jobs.output_tokens, minlength=windows),
        capacity=_capacity(task, up, windows),
        launch_delays_s=delays_s,
    )


def _count_until(times: Array, ends: Array) -> Array:
    found: Array = np.searchsorted(np.sort(times), ends, side="right").astype(np.float64)
    return found


def _values(turns: Turns, prices: PriceSpec) -> Array:
    value: Array = PER_MILLION * (
        (turns.prompt_tokens - turns.history_tokens) * prices.prompt_usd_per_million
        + turns.history_tokens * prices.cached_usd_per_million
        + turns.output_tokens * prices.output_usd_per_million
    )
    return value


def _table(turns: Turns, task: FleetTask) -> RequestTable:
    return RequestTable.of(
        np.round(turns.arrival_s * PS_PER_S).astype(np.int64),
        turns.prompt_tokens,
        turns.output_tokens,
        ttft_slo_ps=np.full(len(turns.arrival_s), ms_to_ps(task.slo.ttft_ms)),
        patience_ps=np.full(len(turns.arrival_s), s_to_ps(task.traffic_spec.patience_s)),
        session_id=turns.session,
    )


def _draw(spec: LengthSpec, count: int, random: np.random.Generator) -> Array:
    drawn = np.exp(np.log(spec.median) + spec.sigma * random.standard_normal(count))
    tokens: Array = np.clip(drawn, 1.0, spec.most).astype(np.int64)
    return tokens


def _sample_jobs(
    spec: BatchSpec | None, prices: PriceSpec, series: RateSeries, start_s: float, length_s: float, seed: int
) -> BatchJobs:
    """Loads of jobs at random times, as many as the series' mean says."""
    if spec is None:
        empty = np.zeros(0)
        return BatchJobs(empty, empty, np.zeros(0, np.int64), np.zeros(0, np.int64), empty)
    random = stream(seed, JITTER_STREAM)
    loads = random.poisson(spec.mean_rps * length_s / spec.jobs_per_load)
    arrival = np.repeat(np.sort(random.random(loads) * length_s), spec.jobs_per_load)
    prompt, output = _draw(spec.prompt, len(arrival), random), _draw(spec.output, len(arrival), random)
    full = prompt * prices.prompt_usd_per_million + output * prices.output_usd_per_million
    return BatchJobs(arrival, arrival + spec.deadline_s, prompt, output, full * prices.batch_share * PER_MILLION)


def _zone_rows(task: FleetTask) -> list[tuple[int, int]]:
    """(pool, zone) of each spot pool."""
    names = [zone.name for zone in task.zones]
    return [(p, names.index(pool.zone)) for p, pool in enumerate(task.pools) if pool.zone is not None]


def _capacity(task: FleetTask, up: Array, windows: int) -> Array:
    capacity = np.tile([float(pool.max_replicas) for pool in task.pools], (windows, 1))
    at = np.minimum((np.arange(windows) * task.window_s // STEP_S).astype(int), max(up.shape[1] - 1, 0))
    for p, z in _zone_rows(task):
        capacity[~up[z, at], p] = 0.0
    return capacity


def _changes(task: FleetTask, up: Array) -> Array:
    """The zones' comings and goings as changes of their pools' capacity, in order of time and pool."""
    rows = []
    for p, z in _zone_rows(task):
        before = np.concatenate([[True], up[z, :-1]])
        rows += [
            (round(step * STEP_S * PS_PER_S), p, task.pools[p].max_replicas if up[z, step] else 0)
            for step in np.flatnonzero(up[z] != before).tolist()
        ]
    return np.array(sorted(rows), CAPACITY_DTYPE)
