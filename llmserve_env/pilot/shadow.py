"""Shadow mode: what a pilot would have done with recorded windows, and what the simulator expects of it.

The recorded windows are replayed twice. Open loop: the policy sees each recorded window and says what it would have
wanted. Closed loop: requests with the recorded rates and lengths are simulated once under the recorded configuration
and once under the policy within its bounds, because a policy changes what it sees next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from llmserve_env.agents.agent import Agent, view_of
from llmserve_env.backends.simulated import SimulatedBackend
from llmserve_env.engine.knobs import NAMES
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.errors import ConfigError
from llmserve_env.pilot.asking import ask
from llmserve_env.pilot.bounds import Bounds
from llmserve_env.pilot.observed import Watch
from llmserve_env.pilot.readings import Reading
from llmserve_env.request_outcomes import request_figures
from llmserve_env.request_table import RequestTable
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import with_changes
from llmserve_env.units import NEVER_PS, s_to_ps

MAX_LOG_BYTES = 500_000_000


@dataclass(frozen=True, slots=True)
class RecordedWindow:
    """A window of the log: what was in force, and what the engine reported."""

    in_force: dict[str, Any]
    reading: Reading


@dataclass(frozen=True, slots=True)
class Shadow:
    """What the pilot would have done, and what each side of the simulation came to."""

    windows: int
    changes: int
    """Windows after which the policy, within its bounds, wanted something else than was in force."""
    bounded: int
    """Windows in which the bounds changed its wish."""
    mean_wanted: dict[str, float]
    recorded: dict[str, float]
    piloted: dict[str, float]

    def saved(self, name: str) -> float:
        """Relative saving of the piloted side; 0 where there was nothing to save."""
        return 1.0 - self.piloted[name] / self.recorded[name] if self.recorded[name] else 0.0


def read_log(path: Path) -> list[RecordedWindow]:
    """The windows of a decision log; those without metrics are left out."""
    try:
        if path.stat().st_size > MAX_LOG_BYTES:
            raise ConfigError(f"{path} is larger than {MAX_LOG_BYTES} bytes; replay a day at a time")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as a log of decisions: {error}") from error
    windows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if row["reading"]:
                windows.append(RecordedWindow(dict(row["in_force"]), Reading.from_json(row["reading"])))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path}:{number} is not a decision of a pilot: {error!r}") from error
    if not windows:
        raise ConfigError(f"{path} holds no window with metrics; record one with `llmserve pilot --log`")
    return windows


def replay(task: Task, policy: Agent, bounds: Bounds, windows: Sequence[RecordedWindow], seed: int = 0) -> Shadow:
    """Open and closed loop over the recorded windows."""
    changes, bounded, wishes = _open_loop(task, policy, bounds, windows)
    length_s = float(np.median([window.reading.length_s for window in windows]))
    horizon_s = int(length_s * len(windows)) + 1
    simulated = with_changes(task, steps=len(windows), window_s=length_s, workload={"horizon_s": horizon_s})
    requests = requests_of(task, windows, length_s, seed)
    fixed = [_row(simulated, window.in_force) for window in windows]
    return Shadow(
        windows=len(windows),
        changes=changes,
        bounded=bounded,
        mean_wanted={name: float(np.mean([wish[name] for wish in wishes])) for name in wishes[0]},
        recorded=_simulate(simulated, requests, seed, lambda batch, step: fixed[step]),
        piloted=_simulate(simulated, requests, seed, _Piloted(simulated, policy, bounds, windows[0].in_force)),
    )


def _open_loop(
    task: Task, policy: Agent, bounds: Bounds, windows: Sequence[RecordedWindow]
) -> tuple[int, int, list[dict[str, Any]]]:
    watch = Watch(task, windows[0].in_force)
    policy.reset(task, [stream(0, POLICY_STREAM)])
    changes, bounded, wishes = 0, 0, []
    for window in windows:
        watch.set_knobs(window.in_force)
        watch.see(window.reading)
        view = view_of(watch.batch, int(watch.batch.control[0]["step"]))
        wanted = ask(policy, view, window.in_force)
        permitted, reasons = bounds.limit(wanted, window.in_force, {})
        changes += permitted != window.in_force
        bounded += bool(reasons)
        wishes.append(permitted)
    return changes, bounded, wishes


def requests_of(task: Task, windows: Sequence[RecordedWindow], length_s: float, seed: int) -> RequestTable:
    """Requests with the recorded arrivals per window and the recorded mean lengths, spread by a seed."""
    random = np.random.default_rng(seed)
    service = task.workload.classes[0]
    arrivals, prompts, outputs = [], [], []
    for i, window in enumerate(windows):
        reading, n = window.reading, window.reading.arrived
        prompt = max(reading.prompt_tokens / max(reading.first_tokens, 1), 1.0)
        output = max(reading.output_tokens / max(reading.first_tokens, 1), 1.0)
        arrivals.append(np.sort(random.random(n)) * length_s + i * length_s)
        prompts.append(np.clip(np.rint(random.gamma(4.0, prompt / 4.0, n)), 1, task.fleet.max_model_len // 2))
        outputs.append(np.clip(np.rint(random.gamma(2.0, output / 2.0, n)), 1, task.fleet.max_model_len // 2))
    at_s = np.concatenate(arrivals)
    count = len(at_s)
    slo_ps = NEVER_PS if service.ttft_slo_ms is None else s_to_ps(service.ttft_slo_ms / 1e3)
    whole, none = np.zeros(count, np.int64), np.full(count, -1, np.int64)
    return RequestTable(
        arrival_at_ps=np.rint(at_s * 1e12).astype(np.int64),
        prompt_tokens=np.concatenate(prompts).astype(np.int64),
        output_tokens=np.concatenate(outputs).astype(np.int64),
        priority=whole,
        tenant=whole.copy(),
        ttft_slo_ps=np.full(count, slo_ps, np.int64),
        patience_ps=np.full(count, NEVER_PS, np.int64),
        acceptance=np.zeros(count),
        prefix_id=none,
        prefix_tokens=whole.copy(),
        session_id=none.copy(),
    )


def _row(task: Task, knobs: Mapping[str, Any]) -> Any:
    row = task.default_knobs.copy()
    for k, name in enumerate(NAMES):
        if name in knobs:
            row[k] = min(float(knobs[name]), _most(task, name))
    return row


def _most(task: Task, name: str) -> float:
    """The largest value of a knob on the simulated fleet, which may be smaller than the engine was."""
    return float({"batch_cap": task.fleet.max_running, "token_budget": task.fleet.token_budget}.get(name, np.inf))


class _Piloted:
    """The policy within its bounds, as the chooser of simulated knobs."""

    def __init__(self, task: Task, policy: Agent, bounds: Bounds, start: Mapping[str, Any]) -> None:
        self._task, self._policy, self._bounds = task, policy, bounds
        self._current, self._unchanged_for = dict(start), dict.fromkeys(start, 10**6)
        policy.reset(task, [stream(0, POLICY_STREAM)])

    def __call__(self, batch: EpisodeBatch, step: int) -> Any:
        if step:
            wanted = ask(self._policy, view_of(batch, step), self._current)
            permitted, _ = self._bounds.limit(wanted, self._current, self._unchanged_for)
            for name in permitted:
                is_changed = permitted[name] != self._current[name]
                self._unchanged_for[name] = 1 if is_changed else self._unchanged_for[name] + 1
            self._current = permitted
        return _row(self._task, self._current)


def _simulate(task: Task, requests: RequestTable, seed: int, choose: Any) -> dict[str, float]:
    """Serve the requests window by window; returns totals and figures of the whole."""
    backend = SimulatedBackend(task)
    batch = EpisodeBatch(backend)
    backend.load(0, requests, seed)
    batch.start(0, seed)
    cost_usd = busy_gpu_s = tokens = 0.0
    for step in range(task.steps):
        batch.step(choose(batch, step)[None, :])
        cost_usd += float(batch.terms["cost_usd"][0])
        busy_gpu_s += float(batch.metrics["busy_gpu_s"][0])
        tokens += float(batch.window["output_tokens"][0])
    figures = request_figures(backend.outcomes(0))
    return {
        "cost_usd": cost_usd,
        "busy_gpu_s": busy_gpu_s,
        "output_tokens": tokens,
        "finished": float(figures.num_finished),
        "ttft_mean_ms": figures.ttft.mean_ms,
        "ttft_p99_ms": figures.ttft[99],
        "within_slo": float(figures.ttft.within_slo if figures.ttft.within_slo is not None else 1.0),
    }
