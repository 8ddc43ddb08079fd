"""The engine as the server of a fleet's windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.engine import EngineBatch
from llmserve_env.engine.fleet import ASLEEP, BOOTING, DRAINING, STATE_NAMES, UP, WAKING, FleetOrders
from llmserve_env.engine.kernels.compilation import machine_code
from llmserve_env.engine.kernels.ended import ENDED_DTYPE, POOL_TOTALS, collect_ended
from llmserve_env.engine.kernels.giving import give_requests
from llmserve_env.engine.layout import REQUEST_DTYPE
from llmserve_env.engine.loading import request_records
from llmserve_env.engine.state import pending_progress, records
from llmserve_env.fleet.backlog import Backlog
from llmserve_env.fleet.decision import FleetDecision
from llmserve_env.fleet.outcome import PoolOutcome, WindowOutcome
from llmserve_env.fleet.task import FleetTask
from llmserve_env.fleet.traffic import Traffic
from llmserve_env.request_table import RequestTable
from llmserve_env.units import PS_PER_MS, PS_PER_S, ms_to_ps, s_to_ps

STATES = (UP, BOOTING, WAKING, DRAINING, ASLEEP)
TOTALS = ("refused", "failed", "taken", "serving_ps", "asleep_ps")
BATCH_PRIORITY = 1


class EngineServer:
    """Requests and admitted batch jobs go to the engine window by window, in order of arrival."""

    def __init__(self, task: FleetTask, traffic: Traffic) -> None:
        self.task, self.traffic = task, traffic
        most = len(traffic.requests) + len(traffic.jobs)
        # Powers of two, because the engine keeps what it makes once per size.
        room = 1 << max(most - 1, 1).bit_length()
        shape = (traffic.script.launch_delays_ps.shape[1], len(traffic.script.capacity))
        self._engine = EngineBatch(task.deployment, 1, room, script_shape=shape)
        self._records = request_records(traffic.requests, task.deployment.block_tokens)
        self._first = np.searchsorted(
            traffic.requests.arrival_at_ps, np.arange(traffic.num_windows + 1) * s_to_ps(task.window_s)
        )
        self._ttft_ps, self._tpot_ps = ms_to_ps(task.slo.ttft_ms), ms_to_ps(task.slo.tpot_ms)
        self._row_of = np.zeros(len(traffic.requests), np.int32)
        self._value_usd = np.zeros(room)
        self._open = np.zeros(room, np.int64)
        self._until_ps = np.zeros(1, np.int64)
        self._blank = pending_progress()
        self._ended = records((1,), ENDED_DTYPE)
        self._by_state = np.zeros((len(task.pools), len(STATE_NAMES)), np.int64)
        self._by_pool = np.zeros((len(task.pools), len(POOL_TOTALS)), np.int64)
        self.reset()

    def reset(self) -> None:
        """Go back to the start of the lead."""
        engine = self._engine
        engine.load(0, RequestTable.of([], [], []), self.traffic.seed, self.traffic.script)
        engine.knobs["batch_cap"] = self.task.replica.max_running
        engine.knobs["priority_routing"] = self.task.batch is not None
        self._window, self._rows = 0, 0
        self._num_open = 0
        self._backlog = Backlog(self.traffic.jobs, self.task.batch)
        self._totals = self._pool_totals()

    def serve(self, decision: FleetDecision) -> WindowOutcome:
        """Serve the next window under this decision."""
        engine, began_s = self._engine, self._window * self.task.window_s
        jobs = self._backlog.admit(began_s, self.task.window_s, decision.batch_share)
        self._append(jobs, began_s)
        engine.order(0, FleetOrders(decision.serving, decision.asleep))
        budget = decision.token_budget
        engine.knobs["token_budget"] = self.task.replica.token_budget if budget is None else budget
        self._window += 1
        self._until_ps[0] = s_to_ps(self._window * self.task.window_s)
        engine.advance(self._until_ps)
        return self._outcome(self._window * self.task.window_s)

    def _append(self, jobs: range, began_s: float) -> None:
        """Give the engine the window's requests and, spread evenly among them, the admitted jobs."""
        first, stop = self._first[self._window], self._first[self._window + 1]
        arguments = (
            self._engine.state,
            self._blank,
            self._records[first:stop],
            self.traffic.value_usd[first:stop],
            self._job_records(jobs, began_s),
            self.traffic.jobs.value_usd[jobs.start : jobs.stop],
            self._row_of,
            int(first),
            self._value_usd,
            self._open,
            self._num_open,
        )
        given = machine_code(give_requests, *arguments)(*arguments)
        self._num_open += given - self._rows
        self._rows = given

    def _job_records(self, jobs: range, began_s: float) -> Array:
        """Admitted jobs as requests, spread over the window."""
        source, count = self.traffic.jobs, len(jobs)
        rows = records((count,), REQUEST_DTYPE)
        if not jobs:
            return rows
        spread_ps = np.arange(count) * (s_to_ps(self.task.window_s) // count)
        rows["arrival_at_ps"] = s_to_ps(began_s) + spread_ps
        deadline_ps = np.round(source.deadline_s[jobs.start : jobs.stop] * PS_PER_S)
        rows["slo_at_ps"] = rows["deadline_at_ps"] = deadline_ps
        rows["prompt_tokens"] = source.prompt_tokens[jobs.start : jobs.stop]
        rows["output_tokens"] = source.output_tokens[jobs.start : jobs.stop]
        rows["priority"], rows["session_root"] = BATCH_PRIORITY, -1
        rows["own_stream"] = -2 - len(self._records) - np.arange(jobs.start, jobs.stop)
        return rows

    def _outcome(self, now_s: float) -> WindowOutcome:
        """What the window came to."""
        ended, by_state = self._ended, self._by_state
        ended.view(np.uint8)[:] = 0
        arguments = (
            self._engine.state,
            self._open,
            self._num_open,
            self._value_usd,
            self._ttft_ps,
            self._tpot_ps,
            by_state,
            self._by_pool,
            ended,
        )
        self._num_open = machine_code(collect_ended, *arguments)(*arguments)
        judged, finished, met, ttft_met, tpot_met, ttft_ps, tpot_ps, value, late_value, waiting, jobs, *fleet = ended[
            0
        ].item()
        output_tokens, running, used_blocks, blocks = fleet
        return WindowOutcome(
            judged=judged,
            met=met,
            ttft_met=ttft_met,
            tpot_met=tpot_met,
            finished=finished,
            ttft_ms=ttft_ps / max(finished, 1) / PS_PER_MS,
            tpot_ms=tpot_ps / max(finished, 1) / PS_PER_MS,
            interactive_usd=value,
            batch_usd=late_value,
            output_tokens=float(output_tokens),
            queue=float(waiting),
            running=float(running),
            kv_use=used_blocks / blocks if blocks else 0.0,
            batch_backlog=float(self._backlog.waiting(now_s)),
            batch_running=float(jobs),
            batch_deadline_s=self._backlog.deadline_in_s(now_s),
            batch_expired=float(self._backlog.expired),
            pools=self._pool_outcomes(),
        )

    def _pool_totals(self) -> Array:
        pools = self._engine.state.pools[0]
        totals: Array = np.array([pools[name] for name in TOTALS])
        return totals

    def _pool_outcomes(self) -> tuple[PoolOutcome, ...]:
        totals = self._pool_totals()
        gained, self._totals = totals - self._totals, totals
        by_state = self._by_state[:, STATES]
        seconds = gained[3:] / PS_PER_S
        waiting, running, used, blocks = self._by_pool.T
        kv_use = used / np.maximum(blocks, 1)
        figures = np.concatenate([by_state.T, gained[:3], seconds, [waiting, running, kv_use]]).T.tolist()
        return tuple(PoolOutcome(*row) for row in figures)

    @property
    def given(self) -> tuple[Array, Array, Array]:
        """(requests, their progress, what each earns): all that the engine was given so far."""
        state = self._engine.state
        return state.requests[0, : self._rows], state.progress[0, : self._rows], self._value_usd[: self._rows]

    def snapshot(self) -> Any:
        """A copy to come back to; the requests given to the engine so far are part of it."""
        given = self._engine.state.requests[0, : self._rows].copy()
        backlog = replace(self._backlog)
        worth = self._value_usd[: self._rows].copy()
        opened = self._open[: self._num_open].copy()
        kept = (self._window, self._rows, opened, self._totals.copy(), self._row_of.copy())
        return self._engine.snapshot(), given, worth, backlog, kept

    def restore(self, snapshot: Any) -> None:
        """Go back to a snapshot."""
        engine, given, worth, backlog, kept = snapshot
        self._engine.restore(engine)
        self._window, self._rows, opened, totals, row_of = kept
        self._engine.state.requests[0, : self._rows] = given
        self._value_usd[: self._rows] = worth
        self._backlog = replace(backlog)
        self._num_open = len(opened)
        self._open[: self._num_open] = opened
        self._totals, self._row_of = totals.copy(), row_of.copy()
