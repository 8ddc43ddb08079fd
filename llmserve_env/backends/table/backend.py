"""A lookup table as a backend: the task's requests wait in a queue that is served at the table's rates."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.backends.accounting import WindowBook
from llmserve_env.backends.backend import Mode
from llmserve_env.backends.table.fluid_queue import FluidQueue, ServedWindow
from llmserve_env.backends.table.lookup import LookupTable, draw_jitter, jitter_stream
from llmserve_env.engine.knobs import named
from llmserve_env.errors import ConfigError, EpisodeStateError
from llmserve_env.request_outcomes import RequestOutcomes
from llmserve_env.request_table import RequestTable
from llmserve_env.tasks.task import Task
from llmserve_env.units import BYTES_PER_GB, PS_PER_MS, s_to_ps
from llmserve_env.workloads import sample


class TableBackend:
    """One episode of a task on a lookup table.

    `prefill_decode_split` and `priority_routing` have no column in a table and change nothing. Counters and metrics
    that a table cannot know stay 0; docs/tables.md lists them. With `makes_room_for_cap` a replica needs memory for as
    many requests as the batch cap allows, whether they run or not, as an engine that warms up at its largest batch.
    """

    mode: Mode = "table"
    num_episodes = 1
    stopped: str | None = None
    window_budget_usd: float | None = None
    fixed_knobs: tuple[str, ...] = ()
    window_usd = 0.0

    def __init__(self, task: Task, table: LookupTable, *, makes_room_for_cap: bool = False) -> None:
        if table.metadata.get("task", task.id) != task.id:
            raise ConfigError(
                f"the table was exported for {table.metadata['task']}, not for {task.id}: "
                f"run `llmserve table export --task {task.id}`"
            )
        self.task, self.table, self._makes_room_for_cap = task, table, makes_room_for_cap
        self._book = WindowBook(task.fleet)
        self.window, self.metrics = self._book.window, self._book.metrics
        self._queue: FluidQueue | None = None
        self._seed = self._step = 0

    def reset(self, index: int, seed: int) -> None:
        """Start the episode with the traffic of this seed."""
        requests, deployment = sample(self.task.workload, seed), self.task.deployment
        self._queue = FluidQueue(requests, deployment.replicas, deployment.waiting_room)
        self._book.reset(len(requests))
        self._seed, self._step = seed, 0

    def serve(self, knobs: Array) -> None:
        """Serve and measure one window."""
        if self._queue is None:
            raise EpisodeStateError("reset the episode before its first step")
        queue, in_force = self._queue, named(knobs[0])
        tier, batch_cap = int(in_force["quantization_tier"]), int(in_force["batch_cap"])
        start_ps = self._step * self.task.window_ps
        end_ps = start_ps + self.task.window_ps
        curve = self.table.over_mix(
            float(in_force["kv_budget_fraction"]),
            int(in_force["speculation_depth"]),
            tier,
            _prompts(queue, batch_cap, (start_ps, end_ps)),
        )
        jitter = draw_jitter(jitter_stream(self._seed, self._step))
        if self._makes_room_for_cap:
            queue.make_room(curve.at(batch_cap))
        served = queue.serve(curve, batch_cap, start_ps, end_ps, jitter)
        self._report(queue.requests, served)
        self._close(queue, served, tier, end_ps)
        self._step += 1

    def _report(self, requests: RequestTable, served: ServedWindow) -> None:
        """Enter what happened to requests into the book."""
        assert served.busiest is not None  # every slice looks the table up
        book, new = self._book, served.arrived
        book.arrive(
            requests.arrival_at_ps[new], requests.prompt_tokens[new], requests.priority[new], requests.ttft_slo_ps[new]
        )
        for rows in served.rejected:
            book.reject(rows, requests.arrival_at_ps[rows])
        for rows in served.abandoned:
            book.abandon(rows, requests.arrival_at_ps[rows] + requests.patience_ps[rows])
        for rows, waits_ms in zip(served.started, served.waits_ms, strict=True):
            ttft_ps = np.rint((waits_ms + served.busiest.ttft_p50_ms) * PS_PER_MS).astype(np.int64)
            book.tokens(rows, requests.arrival_at_ps[rows] + ttft_ps, 0)
        if output_tokens := round(served.output_tokens):
            book.gaps(int(served.busiest.tpot_ms * PS_PER_MS), output_tokens)

    def _close(self, queue: FluidQueue, served: ServedWindow, tier: int, end_ps: int) -> None:
        assert served.busiest is not None  # every slice looks the table up
        window_ps, replicas = self.task.window_ps, queue.num_replicas
        peak_bytes = round(served.peak_memory_gb * BYTES_PER_GB)
        self._book.close_window(
            end_ps,
            tier=tier,
            counts={
                "finished": served.finished,
                "output_tokens": round(served.output_tokens),
                "ooms": int(served.is_out_of_memory),
                "peak_memory_bytes": peak_bytes,
                "busy_ps": s_to_ps(served.busy_gpu_s),
                "in_service_ps": replicas * window_ps,
                "reserved_byte_ms": replicas * peak_bytes * (window_ps // PS_PER_MS),
            },
            gauges={
                "queue_depth": len(queue.waiting),
                "active_requests": len(queue.running),
                "available_replicas": 0 if served.is_out_of_memory else replicas,
                "tier_progress": 1.0,
            },
        )
        metrics = self.metrics[0]
        if metrics["ttft_p99_ms"] > metrics["oldest_wait_ms"]:
            # All requests of a window have the table's median TTFT; its spread belongs to the late ones.
            metrics["ttft_p99_ms"] += served.busiest.ttft_p99_ms - served.busiest.ttft_p50_ms

    def outcomes(self, index: int) -> RequestOutcomes:
        """What has become of the requests, from the book."""
        return self._book.outcomes(self.task)

    def details(self) -> dict[str, Any]:
        """A table adds nothing to the observation's metadata."""
        return {}

    def close(self, reason: str | None = None) -> None:
        """A table holds nothing that must be released."""


def _prompts(queue: FluidQueue, batch_cap: int, span_ps: tuple[int, int]) -> Array:
    """Prompt lengths in service or next in line; those that arrive in the window when there are none."""
    room = batch_cap * queue.num_replicas
    held = np.concatenate((queue.running, queue.waiting))[: max(room, len(queue.running))]
    if not len(held):
        held = np.arange(*np.searchsorted(queue.requests.arrival_at_ps, span_ps))
    prompts: Array = queue.requests.prompt_tokens[held]
    return prompts if len(prompts) else np.ones(1)
