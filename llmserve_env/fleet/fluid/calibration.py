"""Fitting the surrogate to runs of the engine, and keeping the fit."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import isotonic_regression

from llmserve_env.arrays import Array
from llmserve_env.errors import ConfigError
from llmserve_env.fleet.fluid.recording import Recording
from llmserve_env.fleet.fluid.service import (
    BUSY_KNOTS,
    RUNNING_KNOTS,
    WAIT_KNOTS,
    Curves,
    Demand,
    Flow,
    InFlight,
    Served,
)
from llmserve_env.fleet.task import FleetTask

FITS = Path(__file__).parents[1] / "data" / "fluid"
TRIALS = 500
FITTED = ("base_s", "per_running_s", "prompt_s", "history_s", "most_running")
BUSY_RUNNING = 60.0
NO_WAIT_S = 0.02
CALM_TTFT_SHARE = 0.25
LEAST_TTFT_S = 0.01
OVERLOAD_WINDOWS, MOVED_WINDOWS = 6, 2
"""For how many windows an overload, and a replica that comes or goes, are felt."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A surrogate's constants for one version of a task."""

    task: str
    token_budget: int
    """The engine was recorded under it, and rules and policies keep to it."""
    flow: Flow
    curves: Curves


def load_calibration(task: FleetTask) -> Calibration:
    """The fit that ships for this version of a task."""
    path = FITS / f"{task.versioned_id}.json"
    if not path.is_file():
        raise ConfigError(f"{task.versioned_id} has no surrogate; make it with: llmserve fleet calibrate {task.id}")
    data = json.loads(path.read_text(encoding="utf-8"))
    curves = Curves(**{name: tuple(values) for name, values in data["curves"].items()})
    return Calibration(data["task"], data["token_budget"], Flow(**data["flow"]), curves)


def save_calibration(found: Calibration) -> Path:
    """Write a fit to the place from which it ships."""
    path = FITS / f"{found.task}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {
        "task": found.task,
        "token_budget": found.token_budget,
        "flow": asdict(found.flow),
        "curves": found.curves.as_dict(),
    }
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return path


def role_counts(task: FleetTask, up: Array) -> tuple[Array, Array]:
    """(decoding, prefilling) replicas from counts per pool on the last axis, at least half a replica each."""
    is_prefill = np.array([pool.role == "prefill" for pool in task.pools])
    decoding = np.maximum(up[..., ~is_prefill].sum(-1), 0.5)
    return decoding, np.maximum(up[..., is_prefill].sum(-1), 0.5) if is_prefill.any() else decoding


def demand_at(per_window: dict[str, Array], job_tokens: Array, window: int, window_s: float, admitted: Array) -> Demand:
    """What arrives in one window of each episode; arrays are [episode, window]."""
    arrivals = per_window["arrivals"][:, window]
    new = per_window["new_prompt_tokens"][:, window]
    return Demand(
        request_rps=arrivals / window_s,
        output_tokens=per_window["output_tokens"][:, window] / np.maximum(arrivals, 1.0),
        new_prompt_tps=new / window_s,
        history_tps=(per_window["prompt_tokens"][:, window] - new) / window_s,
        job_rps=admitted / window_s,
        job_prompt_tokens=job_tokens[:, 0],
        job_output_tokens=job_tokens[:, 1],
    )


def replay(task: FleetTask, recording: Recording, flow: Flow) -> dict[str, Array]:
    """The surrogate on the recorded fleets: each figure of `Served` as [episode, step]."""
    worlds = recording.worlds
    state = InFlight(flow, len(worlds), worlds.window_s, task.traffic_spec.patience_s)
    decoding, prefilling = role_counts(task, recording.up)
    steps: list[Served] = []
    for step in range(recording.up.shape[1]):
        window = worlds.lead_windows + step
        admitted = recording.admitted[:, step]
        demand = demand_at(worlds.per_window, worlds.job_tokens, window, worlds.window_s, admitted)
        steps.append(state.serve(demand, decoding[:, step], prefilling[:, step]))
    names = ("running", "mean_running", "waiting", "unread", "wait_s", "tpot_s", "prefill")
    return {name: np.stack([getattr(step, name) for step in steps], axis=1) for name in names}


def misfit(task: FleetTask, recording: Recording, flow: Flow) -> float:
    """How far the surrogate's batches, pace, queues and prefilling replicas are from the engine's."""
    found, figures = replay(task, recording, flow), recording.figures
    decoding, _ = role_counts(task, recording.up)
    running = figures["decode.running"] / decoding
    # What breaks the promises on average is an overload; a good policy spends little time there.
    keeps = (figures["tpot_ms"] <= task.slo.tpot_ms) & (figures["ttft_ms"] <= task.slo.ttft_ms)
    calm = np.where(keeps, 1.0, 0.1)
    batch = np.log1p(found["running"]) - np.log1p(running)
    waiting = found["waiting"] + found["unread"]
    queue = np.log1p(waiting / decoding) - np.log1p(figures["queue"] / decoding)
    tpot_ms = np.maximum(figures["tpot_ms"], 1.0)
    pace = np.where(figures["tpot_ms"] > 0.0, np.log(found["tpot_s"] * 1e3) - np.log(tpot_ms), 0.0)
    total = np.mean(calm * (batch**2 + 2.0 * pace**2)) / calm.mean() + 0.1 * np.mean(queue**2)
    if flow.is_split:
        total += np.mean(calm * _prefill_errors(figures["ttft_ms"], found["wait_s"]) ** 2) / calm.mean()
    return float(total)


def _prefill_errors(ttft_ms: Array, wait_s: Array) -> Array:
    """Of the time to the first token, which alone shows how busy prefilling replicas are."""
    is_seen = ttft_ms > 0.0
    unloaded_s = np.quantile(ttft_ms[is_seen], 0.05) / 1e3 - np.quantile(wait_s[is_seen], 0.05)
    expected_s = np.maximum(unloaded_s, LEAST_TTFT_S) + wait_s
    return np.where(is_seen, np.log(expected_s) - np.log(np.maximum(ttft_ms / 1e3, LEAST_TTFT_S)), 0.0)


def fit(task: FleetTask, recording: Recording, seed: int = 0) -> Calibration:
    """Constants by random search around the best so far, then the curves that go with them."""
    is_split = any(pool.role == "prefill" for pool in task.pools)
    fitted = (*FITTED, "chance_s") if is_split else FITTED
    rng = np.random.default_rng(seed)
    best = Flow(0.015, 3e-4, 3e-5, 1e-6, min(200.0, task.replica.max_running), is_split)
    least = misfit(task, recording, best)
    for trial in range(TRIALS):
        reach = 0.6 * 0.992**trial
        moves = np.exp(reach * rng.standard_normal(len(fitted)) * (rng.random(len(fitted)) < 0.5))
        moved = {name: getattr(best, name) * move for name, move in zip(fitted, moves, strict=True)}
        moved["most_running"] = min(moved["most_running"], float(task.replica.max_running))
        candidate = replace(best, **moved)
        found = misfit(task, recording, candidate)
        if found < least:
            best, least = candidate, found
    return Calibration(task.versioned_id, recording.token_budget, best, _curves(task, recording, best))


def batch_index(mean_running: Array) -> Array:
    """The batch that decides on a window's promises: the larger of its own and the one before."""
    before = np.concatenate((mean_running[:, :1], mean_running[:, :-1]), axis=1)
    return np.asarray(np.maximum(mean_running, before))


def arriving_shares(decoding: Array) -> Array:
    """Share of the decoding replicas that arrived since the window before, along the last axis."""
    grown = np.diff(decoding, axis=-1, prepend=decoding[..., :1])
    return np.asarray(np.maximum(grown, 0.0) / decoding)


def _curves(task: FleetTask, recording: Recording, flow: Flow) -> Curves:
    found, figures = replay(task, recording, flow), recording.figures
    decoding = role_counts(task, recording.up)[0]
    promises = _role_promises if flow.is_split else _promises
    by_batch, by_arrival, by_wait = promises(found, figures, decoding)
    wait_s, busy = found["wait_s"], found["prefill"]
    every = np.ones_like(wait_s)
    kv_use = _hat_means(found["running"], figures["decode.kv_use"], every, RUNNING_KNOTS, 1.0)[0]
    ttft_ms = _hat_means(wait_s, figures["ttft_ms"], figures["judged"], WAIT_KNOTS, 60_000.0)[0]
    worlds = recording.worlds
    rps = np.maximum(worlds.per_window["arrivals"][:, worlds.lead_windows :] / worlds.window_s, 1e-3)
    # A queue that an overload has left behind is not one that chance makes.
    nobody_waits = every * (_recent_max(figures["ttft_ms"], OVERLOAD_WINDOWS) <= CALM_TTFT_SHARE * task.slo.ttft_ms)
    by_busy = [
        _hat_means(busy, figures[name] / divisor, weight, BUSY_KNOTS, 0.0)[0]
        for name, divisor, weight in (
            ("prefill.queue" if flow.is_split else "queue", rps, nobody_waits),
            ("prefill.running", rps, every),
            ("prefill.kv_use", every, every),
        )
    ]
    curves = (by_batch, by_arrival, by_wait, kv_use, ttft_ms, *by_busy)
    return Curves(*(tuple(float(x) for x in values) for values in curves))


def _promises(found: dict[str, Array], figures: dict[str, Array], decoding: Array) -> tuple[Array, Array, Array]:
    """What the batch, a replica's arrival and the wait keep or break, of both promises together."""
    batch, wait_s, weight = batch_index(found["mean_running"]), found["wait_s"], figures["judged"]
    kept, arriving = figures["met"] / np.maximum(weight, 1.0), arriving_shares(decoding)
    # What is left over from an overload is the overload's doing, not that of the batch after it. What a replica breaks
    # that comes or goes is not the batch's doing either, whose own share is far smaller until it is large.
    calm = weight * (_recent_max(wait_s, OVERLOAD_WINDOWS) < NO_WAIT_S)
    moved = (np.diff(decoding, axis=-1, prepend=decoding[..., :1]) != 0.0).astype(np.float64)
    is_busy = batch > BUSY_RUNNING
    settled = calm * ((_recent_max(moved, MOVED_WINDOWS) == 0.0) | is_busy)
    by_batch = _falling(*_hat_means(batch, kept, settled, RUNNING_KNOTS, 1.0))
    expected = np.interp(batch, RUNNING_KNOTS, by_batch)
    broken = (expected - kept) / np.maximum(arriving, 1e-9)
    by_arrival = _rising(*_hat_means(batch, broken, calm * arriving * ~is_busy, RUNNING_KNOTS, 0.0))
    expected = np.maximum(expected - arriving * np.interp(batch, RUNNING_KNOTS, by_arrival), 0.05)
    by_wait = _falling(*_hat_means(wait_s, kept / expected, weight * expected, WAIT_KNOTS, 0.0))
    return by_batch, by_arrival, by_wait / by_wait[0]


def _role_promises(found: dict[str, Array], figures: dict[str, Array], decoding: Array) -> tuple[Array, Array, Array]:
    """Where roles are split, the batch sets the pace and the wait the first token; an arrival breaks nothing."""
    weight = figures["judged"]
    paced, first = (figures[name] / np.maximum(weight, 1.0) for name in ("tpot_met", "ttft_met"))
    by_batch = _falling(*_hat_means(batch_index(found["mean_running"]), paced, weight, RUNNING_KNOTS, 1.0))
    by_wait = _falling(*_hat_means(found["wait_s"], first, weight, WAIT_KNOTS, 0.0))
    return by_batch, np.zeros_like(by_batch), by_wait


def _recent_max(values: Array, windows: int) -> Array:
    """Largest of the latest windows, along the last axis."""
    found = values.copy()
    for lag in range(1, windows):
        found[:, lag:] = np.maximum(found[:, lag:], values[:, :-lag])
    return found


def _hat_means(x: Array, y: Array, weight: Array, knots: Array, beyond: float) -> tuple[Array, Array]:
    """(weighted means around each knot, their weights); a knot without data lies between its neighbours."""
    x, y, weight = np.clip(x.ravel(), knots[0], knots[-1]), y.ravel(), weight.ravel()
    left = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    part = (x - knots[left]) / (knots[left + 1] - knots[left])
    total, mass = np.zeros(len(knots)), np.zeros(len(knots))
    for knot, share in ((left, 1.0 - part), (left + 1, part)):
        np.add.at(total, knot, weight * share * y)
        np.add.at(mass, knot, weight * share)
    known = mass > 1e-3 * mass.max()
    if not known.any():
        return np.full(len(knots), beyond), mass
    return np.asarray(np.interp(knots, knots[known], total[known] / mass[known])), np.where(known, mass, 0.0)


def _falling(values: Array, mass: Array) -> Array:
    """The closest curve from 0 to 1 that never rises."""
    weights = mass / mass.max() + 1e-6 if mass.max() > 0.0 else None
    return np.asarray(np.clip(isotonic_regression(values, weights=weights, increasing=False).x, 0.0, 1.0))


def _rising(values: Array, mass: Array) -> Array:
    """The closest curve from 0 to 1 that never falls."""
    return 1.0 - _falling(1.0 - values, mass)


def comparison(task: FleetTask, recording: Recording, found: Calibration) -> str:
    """Engine and surrogate side by side on the recorded fleets, an episode per line."""
    shown, figures = replay(task, recording, found.flow), recording.figures
    judged, decoding = figures["judged"], role_counts(task, recording.up)[0]
    kept = found.curves.attainment(batch_index(shown["mean_running"]), arriving_shares(decoding), shown["wait_s"])
    lines = ["episode  attainment engine / surrogate   batch engine / surrogate   TPOT ms engine / surrogate"]
    for row in range(len(judged)):
        engine, fluid = figures["met"][row].sum() / judged[row].sum(), np.average(kept[row], weights=judged[row])
        batch, tpot = (figures["decode.running"] / decoding)[row], figures["tpot_ms"][row]
        lines.append(
            f"{row:7d}  {engine:17.4f} / {fluid:9.4f}   {batch.mean():12.1f} / {shown['running'][row].mean():9.1f}"
            f"   {tpot[tpot > 0].mean():14.1f} / {1e3 * shown['tpot_s'][row].mean():9.1f}"
        )
    return "\n".join(lines)
