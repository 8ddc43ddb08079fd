"""Serving as a flow: how many requests are in flight, how fast they decode, and what share of promises is kept.

A batch of `n` requests on a replica decodes a token of each in `(base + per_running * n) / (1 - prefill)` seconds;
`prefill` is the share of time that goes into prompts. In flight there are as many as Little's law says, up to the most
that a replica runs; the rest wait. Which share of promises that keeps is read off curves over the size of the batch
and over the wait. All of it is fitted to the engine (`calibration`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from llmserve_env.arrays import Array

SUBSTEPS = 3
RUNNING_KNOTS = np.array(
    [0, 8, 12, 16, 20, 25, 30, 35, 40, 45, 50, 60, 70, 80, 100, 115, 130, 150, 170, 190, 210, 230, 256, 320, 400],
    np.float64,
)
WAIT_KNOTS = np.array([0, 0.02, 0.05, 0.1, 0.15, 0.25, 0.4, 0.6, 1, 2, 4, 8, 16, 32, 64], np.float64)
"""Seconds."""
BUSY_KNOTS = np.array([0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2])
"""Share of the prefilling replicas' time that prompts take."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What times and limits the engine shows; per replica, in seconds and tokens."""

    base_s: float
    per_running_s: float
    prompt_s: float
    """Time of a prompt token that no cache holds."""
    history_s: float
    """Mean time of a token that earlier turns have sent: most are cached."""
    most_running: float
    is_split: bool = False
    """Whether prompts are processed by replicas of their own."""
    chance_s: float = 0.2
    """How long prompts wait for such replicas by chance alone, at half their capacity with one of them."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Arrivals of one window, per second, one element per episode."""

    request_rps: Array
    output_tokens: Array
    """Per request."""
    new_prompt_tps: Array
    history_tps: Array
    job_rps: Array
    job_prompt_tokens: Array
    job_output_tokens: Array


@dataclass(frozen=True, slots=True)
class Served:
    """What a window came to; one element per episode."""

    running: Array
    """Requests of clients in batches per replica at the end of the window, batch jobs included."""
    mean_running: Array
    """Of the window; where roles are split, requests that wait for a place in a batch count too."""
    waiting: Array
    """Requests of clients that wait for a place in a batch at the end of the window, in all."""
    unread: Array
    """Requests that wait for prefilling replicas of their own, beyond those that wait by chance."""
    wait_s: Array
    """Mean time that requests of this window wait for their first token."""
    tpot_s: Array
    prefill: Array
    """Share of the prefilling replicas' time."""
    output_tps: Array
    jobs_done: Array


class InFlight:
    """Requests and jobs in flight, of many episodes side by side."""

    def __init__(self, flow: Flow, episodes: int, window_s: float, patience_s: float) -> None:
        self._flow, self._dt = flow, window_s / SUBSTEPS
        self._patience_s, self._window_s = patience_s, window_s
        self.requests, self.jobs = np.zeros(episodes), np.zeros(episodes)
        self._prefill_s = np.zeros(episodes)
        """Work of prefilling replicas that is left over, in replica-seconds."""

    def serve(self, demand: Demand, decoding: Array, prefilling: Array) -> Served:
        """Serve a window on so many replicas; where roles are not split, both counts are the same."""
        flow, dt = self._flow, self._dt
        places = flow.most_running * decoding
        work = flow.prompt_s * (demand.new_prompt_tps + demand.job_rps * demand.job_prompt_tokens)
        work = work + flow.history_s * demand.history_tps
        prefill = work / prefilling
        slowed = 0.0 if flow.is_split else np.minimum(prefill, 0.9)
        sums = [np.zeros_like(places) for _ in range(5)]
        for _ in range(SUBSTEPS):
            running = np.minimum(self.requests, places)
            jobs = np.minimum(self.jobs, places - running)
            batch = (running + jobs) / decoding
            tpot = (flow.base_s + flow.per_running_s * batch) / (1.0 - slowed)
            lasts = np.maximum(demand.output_tokens, 1.0) * tpot
            before = self.requests
            self.requests = _after(before, demand.request_rps, lasts, places, dt)
            job_lasts = np.maximum(demand.job_output_tokens, 1.0) * tpot
            jobs_before = self.jobs
            self.jobs = _after(jobs_before, demand.job_rps, job_lasts, np.maximum(places - running, 0.0), dt)
            done = before + demand.request_rps * dt - self.requests
            jobs_done = jobs_before + demand.job_rps * dt - self.jobs
            waits = np.maximum(self.requests - places, 0.0) / np.maximum(places / lasts, 1e-9)
            crowd = (np.maximum(self.requests, running) + jobs) / decoding if flow.is_split else batch
            parts = (crowd, tpot, done * demand.output_tokens + jobs_done * demand.job_output_tokens, jobs_done, waits)
            sums = [total + part for total, part in zip(sums, parts, strict=True)]
        wait_s = self._prefill_wait(work, prefilling, prefill) if flow.is_split else sums[4] / SUBSTEPS
        # Clients who have waited for too long give up.
        self.requests = np.minimum(self.requests, places + self._patience_s * demand.request_rps)
        running = np.minimum(self.requests, places)
        in_batches = running + np.minimum(self.jobs, places - running)
        unread = demand.request_rps * self._prefill_s / np.maximum(work, 1e-9)
        return Served(
            running=in_batches / decoding,
            mean_running=sums[0] / SUBSTEPS,
            waiting=np.maximum(self.requests - places, 0.0),
            unread=unread,
            wait_s=wait_s,
            tpot_s=sums[1] / SUBSTEPS,
            prefill=prefill,
            output_tps=sums[2] / self._window_s,
            jobs_done=sums[3],
        )

    def _prefill_wait(self, work: Array, prefilling: Array, prefill: Array) -> Array:
        """Wait for prefilling replicas of their own: what is left over, and the queue that chance alone makes."""
        self._prefill_s = np.maximum(self._prefill_s + (work - prefilling) * self._window_s, 0.0)
        self._prefill_s = np.minimum(self._prefill_s, self._patience_s * prefilling)
        busy = np.minimum(prefill, 0.98)
        return self._prefill_s / prefilling + self._flow.chance_s * 2.0 * busy**2 / (1.0 - busy) / prefilling


def _after(before: Array, arrivals_rps: Array, lasts_s: Array, places: Array, dt: float) -> Array:
    """Requests in flight after `dt`: towards Little's law where there are places, and at the full rate where not."""
    usual = arrivals_rps * lasts_s
    settled = usual + (before - usual) * np.exp(-dt / lasts_s)
    crowded = before + (arrivals_rps - places / lasts_s) * dt
    is_full = (before >= places) | (settled > places)
    return np.asarray(np.where(is_full, np.maximum(crowded, np.minimum(settled, places)), settled))


@dataclass(frozen=True, slots=True)
class Curves:
    """Figures over the batch per replica (`RUNNING_KNOTS`), over the wait (`WAIT_KNOTS`) or over `BUSY_KNOTS`."""

    kept: tuple[float, ...]
    """Share of promises kept by batch, where nobody waits; where roles are split, of those about the pace."""
    broken_by_arrival: tuple[float, ...]
    """Share of promises broken by batch, per share of the fleet that has just arrived: its caches are empty, and
    everybody is sent there."""
    kept_by_wait: tuple[float, ...]
    """Factor by wait; where roles are split, share of promises about the first token."""
    kv_use: tuple[float, ...]
    ttft_ms: tuple[float, ...]
    """By wait."""
    queue_s: tuple[float, ...]
    """How long a request waits for the next iteration, by how busy prefilling replicas are."""
    prefill_running_s: tuple[float, ...]
    """How long it is then with a prefilling replica of its own, and which share of the KV blocks such replicas use."""
    prefill_kv_use: tuple[float, ...]

    def attainment(self, batch: Array, arriving: Array, wait_s: Array) -> Array:
        """Share of promises kept."""
        kept = np.interp(batch, RUNNING_KNOTS, self.kept)
        kept = np.maximum(kept - arriving * np.interp(batch, RUNNING_KNOTS, self.broken_by_arrival), 0.0)
        return np.asarray(kept * np.interp(wait_s, WAIT_KNOTS, self.kept_by_wait))

    def as_dict(self) -> dict[str, list[float]]:
        """For JSON."""
        return {field.name: list(getattr(self, field.name)) for field in fields(self)}
