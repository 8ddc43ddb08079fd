"""The same task, seed and policy on a live engine and in the simulator, and the errors of the simulation."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.backends.real.backend import LiveBackend
from llmserve_env.backends.real.calibration import front_end_of, host_of, pace, refitted
from llmserve_env.backends.real.plugin.llmserve_steering.control import Status
from llmserve_env.backends.real.recording import Recording, read_recording
from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.backends.real.vllm_provider import VllmProvider
from llmserve_env.backends.simulated import SimulatedBackend
from llmserve_env.engine.costs import NO_HOST
from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.env.episode import Episode
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.errors import ConfigError
from llmserve_env.profiles.host import Host
from llmserve_env.profiles.schema import FrontEnd, Profile
from llmserve_env.tasks.task import Task
from llmserve_env.units import PS_PER_MS, ms_to_ps, ps_to_s
from llmserve_env.workloads import sample, schedule

Policy = Callable[[EpisodeBatch, int], Array]
"""Chooses the knobs, from the batch with its last window and the number of the step to come."""
SERIES = ("ttft_ms", "itl_ms", "throughput_tps", "queue_depth")
MEANS = ("throughput_tps", "ttft_ms", "e2e_ms", "itl_ms")


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: an episode as its clients saw it."""

    ttft_ms: Array
    """Of every request; NaN for those without a first token."""
    e2e_ms: Array
    """Of every request; NaN for those that did not finish."""
    windows: dict[str, Array]
    """Figures of every window, by the names of SERIES; TTFT is the mean over its arrivals."""
    total_reward: float


@dataclass(frozen=True, slots=True)
class PhaseErrors:
    """Means over a stretch of constant load, and relative errors of the simulation."""

    rate_rps: float
    windows: tuple[int, int]
    requests: int
    real: dict[str, float]
    sim: dict[str, float]
    errors: dict[str, float]


@dataclass(frozen=True, slots=True)
class LiveComparison:
    """Both sides of one seed."""

    task_id: str
    seed: int
    real: Side
    sim: Side
    phases: tuple[PhaseErrors, ...]
    pace: float
    """Time of this run's iterations over what the profile says: 1 on a machine as fast as when it was calibrated."""
    front_end: FrontEnd
    """As measured in this run."""
    load_average: float
    is_refitted: bool
    """Whether the costs were fitted to this run's own iterations, instead of the calibration's."""


def fleet_like(task: Task, profile: Profile, status: Status, host: Host | None = None) -> Deployment:
    """The task's fleet with the server's limits, the profile's costs and the host beside them."""
    return replace(
        task.fleet,
        costs=profile.costs() if host is None else host.gpu_costs(profile.costs()),
        host=NO_HOST if host is None else host.costs(),
        graph_max_tokens=status.graph_max_tokens,
        block_tokens=status.block_tokens,
        max_running=status.max_batch_cap,
        token_budget=status.max_token_budget,
        max_model_len=status.max_model_len,
        async_scheduling=status.async_scheduling,
        prefix_caching=status.prefix_caching,
        num_blocks_override=status.num_blocks,
        draft_lookahead=False,
    )


def play_live(
    task: Task, settings: RealSettings, seed: int, choose: Policy, progress: Callable[[int], object]
) -> tuple[Side, Recording, FrontEnd, Status]:
    """Play in real time; returns what clients saw, and what the engine recorded of it."""
    backend = LiveBackend(task, settings.model_copy(update={"record_iterations": True}))
    with Episode(task, backend=backend) as episode:
        episode.reset(seed)
        provider, player = backend.provider, backend.player
        if not isinstance(provider, VllmProvider) or player is None:
            raise ConfigError("comparing needs the iterations of the engine: set LLMSERVE_REAL_PROVIDER=vllm")
        status, path = provider.status(), provider.iterations_path
        while not episode.is_done:
            episode.step(choose(episode.batch, episode.step_count))
            progress(episode.step_count)
        _require_all_sent(backend)
        times = backend.request_times()
        recording = read_recording(path, TIER_NAMES[0])
        received = {i: backend.origin_s + ps_to_s(first) for i, (_, first, _) in times.items() if first >= 0}
        front_end = front_end_of(recording, player.sent_at_s, received)
    in_order = np.array([times[i] for i in sorted(times)]).reshape(-1, 3)
    return _side(task, episode, seed, in_order, 0), recording, front_end, status


def _require_all_sent(backend: LiveBackend) -> None:
    """Refuse a run whose requests were not all sent as the task says: the two sides would differ."""
    details = backend.details()["real"]
    if details["not_sent"] or details["shortened"]:
        raise ConfigError(
            f"{details['not_sent']} requests were not sent and {details['shortened']} were shortened, so the two "
            "sides would differ: raise LLMSERVE_REAL_MAX_REQUESTS_PER_STEP, _MAX_PROMPT_TOKENS and "
            "_MAX_COMPLETION_TOKENS"
        )


def play_sim(task: Task, fleet: Deployment, front_end: FrontEnd | None, seed: int, choose: Policy) -> Side:
    """Play the episode in the simulator; time between engine and client is added to its times, unless a host has it."""
    backend = SimulatedBackend(task, fleet=fleet)
    episode = Episode(task, backend=backend)
    episode.reset(seed)
    while not episode.is_done:
        episode.step(choose(episode.batch, episode.step_count))
    requests = sample(task.workload, seed)
    due = requests.arrival_at_ps < task.steps * task.window_ps
    progress = backend.engine.state.progress[0][: len(requests)]
    times = np.column_stack([requests.arrival_at_ps, progress["first_token_at_ps"], progress["finished_at_ps"]])[due]
    extra_ms = 0.0 if front_end is None else front_end.request_ms + front_end.token_ms
    return _side(task, episode, seed, times, ms_to_ps(extra_ms))


def _side(task: Task, episode: Episode, seed: int, times: Array, extra_ps: int) -> Side:
    arrival, first, finished = times.T
    ttft_ms = np.where(first >= 0, (first - arrival + extra_ps) / PS_PER_MS, np.nan)
    e2e_ms = np.where((first >= 0) & (finished >= 0), (finished - arrival + extra_ps) / PS_PER_MS, np.nan)
    arrived_in = arrival_windows(task, seed)
    metrics = episode.trajectory.metrics[: episode.step_count]
    windows = {
        "ttft_ms": np.array([_mean(ttft_ms[arrived_in == w]) for w in range(episode.step_count)]),
        "itl_ms": metrics["itl_p50_ms"].copy(),
        "throughput_tps": metrics["throughput_tps"].copy(),
        "queue_depth": metrics["queue_depth"].copy(),
    }
    return Side(ttft_ms, e2e_ms, windows, float(episode.trajectory.terms["reward"].sum()))


def arrival_windows(task: Task, seed: int) -> Array:
    """Window in which each request of the episode arrives."""
    arrived_in: Array = sample(task.workload, seed).arrival_at_ps // task.window_ps
    return arrived_in[arrived_in < task.steps]


def _mean(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def compare(
    task: Task,
    profile: Profile,
    settings: RealSettings,
    seed: int,
    choose: Callable[[], Policy],
    progress: Callable[[int], object] = lambda step: None,
    host: Host | None = None,
) -> tuple[LiveComparison, LiveComparison]:
    """One live run against two simulations: with the profile as it is, and with costs fitted to this run."""
    real, recording, front_end, status = play_live(task, settings, seed, choose(), progress)
    factor = pace(profile, "FP16", recording.iterations)
    load = os.getloadavg()[0]
    sides = []
    for is_refitted in (False, True):
        used, its_host = profile, host
        if is_refitted:
            used = refitted(profile, recording, front_end)
            if host is not None and recording.launches:
                its_host = host_of(recording, front_end, status.graph_max_tokens, host.name, "the compared run")
        outside = None if its_host is not None else used.front_end or front_end
        sim = play_sim(task, fleet_like(task, used, status, its_host), outside, seed, choose())
        phases = phase_errors(task, seed, real, sim)
        sides.append(LiveComparison(task.id, seed, real, sim, phases, factor, front_end, load, is_refitted))
    return sides[0], sides[1]


def phase_errors(task: Task, seed: int, real: Side, sim: Side) -> tuple[PhaseErrors, ...]:
    """Errors over each stretch of windows with the same expected rate; silent stretches are left out."""
    arrived_in = arrival_windows(task, seed)
    found = []
    for rate, windows in stretches(task, seed):
        mine = (arrived_in >= windows[0]) & (arrived_in < windows[1])
        sides = [
            {
                "throughput_tps": float(side.windows["throughput_tps"][windows[0] : windows[1]].mean()),
                "ttft_ms": _mean(side.ttft_ms[mine]),
                "e2e_ms": _mean(side.e2e_ms[mine]),
                "itl_ms": _mean(side.windows["itl_ms"][windows[0] : windows[1]]),
                "queue_depth": float(side.windows["queue_depth"][windows[0] : windows[1]].mean()),
            }
            for side in (real, sim)
        ]
        errors = {name: sides[1][name] / value - 1.0 for name, value in sides[0].items() if value > 0.0}
        found.append(PhaseErrors(rate, windows, int(mine.sum()), sides[0], sides[1], errors))
    return tuple(found)


def stretches(task: Task, seed: int) -> list[tuple[float, tuple[int, int]]]:
    """(Rate, (first window, first one after it)) of every stretch of constant expected rate with arrivals."""
    rates = schedule(task.workload, seed).total_rps
    per_window = [round(float(rates[min(int(w * task.window_s), len(rates) - 1)]), 6) for w in range(task.steps)]
    found, start = [], 0
    for rate, group in groupby(per_window):
        size = len(list(group))
        if rate > 0.0:
            found.append((rate, (start, start + size)))
        start += size
    return found


def mean_errors(comparisons: Sequence[LiveComparison]) -> dict[float, dict[str, float]]:
    """Per rate: relative error of the simulated mean over all runs against the real one."""
    found: dict[float, dict[str, float]] = {}
    for rate in dict.fromkeys(phase.rate_rps for c in comparisons for phase in c.phases):
        phases = [phase for c in comparisons for phase in c.phases if phase.rate_rps == rate]
        weights = np.array([phase.requests for phase in phases], dtype=float)
        found[rate] = {
            name: float(
                np.average([p.sim[name] for p in phases], weights=weights)
                / np.average([p.real[name] for p in phases], weights=weights)
                - 1.0
            )
            for name in MEANS
        }
    return found


def _json_list(values: Array) -> list[float | None]:
    return [round(float(v), 4) if np.isfinite(v) else None for v in values]


def report(comparisons: Sequence[LiveComparison]) -> dict[str, Any]:
    """For JSON: every phase of every run, without the arrays of single requests, and the errors of their means."""
    by_costs = {"profile": False, "run": True}
    return {
        "mean_errors": {
            costs: mean_errors([c for c in comparisons if c.is_refitted is is_refitted])
            for costs, is_refitted in by_costs.items()
        },
        "runs": [
            {
                "task": c.task_id,
                "seed": c.seed,
                "is_refitted": c.is_refitted,
                "pace": c.pace,
                "front_end": c.front_end.model_dump(),
                "load_average": c.load_average,
                "rewards": {"real": c.real.total_reward, "sim": c.sim.total_reward},
                "phases": [asdict(phase) for phase in c.phases],
                "windows": {
                    side: {name: _json_list(values) for name, values in played.windows.items()}
                    for side, played in (("real", c.real), ("sim", c.sim))
                },
            }
            for c in comparisons
        ],
    }
