"""Which requests of an episode are sent in a window, and how: within the limits on their number, length and price."""

from __future__ import annotations

import time

import numpy as np

from llmserve_env.backends.real.provider import Call
from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.backends.real.spending import Budget
from llmserve_env.request_table import RequestTable
from llmserve_env.tasks.task import Task
from llmserve_env.units import ps_to_s


class Arrivals:
    """The requests of one episode, window by window."""

    def __init__(self, task: Task, settings: RealSettings, requests: RequestTable, seed: int) -> None:
        self._task, self._settings, self._requests, self._seed = task, settings, requests, seed
        self.window_s = settings.window_s or task.window_s
        self._cursor = 0
        self.not_sent = self.shortened = 0

    def due(self, window: int, opened_at_s: float, budget: Budget) -> list[Call]:
        """The calls of the window that opens then; requests beyond its limits are counted as not sent."""
        starts_at_ps = window * self._task.window_ps
        first = self._cursor
        self._cursor = int(
            np.searchsorted(self._requests.arrival_at_ps, starts_at_ps + self._task.window_ps, side="left")
        )
        allowance = budget.allowance(self._task.steps - window) if self._settings.spread_caps else None
        calls: list[Call] = []
        for q in range(first, self._cursor):
            call = self._call(q, starts_at_ps, opened_at_s)
            if len(calls) == self._settings.max_requests_per_step:
                break
            if allowance is not None and not allowance.take(call.prompt_tokens, call.output_tokens):
                break
            calls.append(call)
        self.not_sent += self._cursor - first - len(calls)
        for call in calls:
            prompt, output = self._requests.prompt_tokens[call.index], self._requests.output_tokens[call.index]
            self.shortened += bool(prompt > call.prompt_tokens or output > call.output_tokens)
        return calls

    def _call(self, q: int, starts_at_ps: int, opened_at_s: float) -> Call:
        requests, limits = self._requests, self._settings
        # A longer window spreads its arrivals.
        offset_s = ps_to_s(int(requests.arrival_at_ps[q]) - starts_at_ps) * self.window_s / self._task.window_s
        patience_s = limits.patience_of(ps_to_s(int(requests.patience_ps[q])))
        return Call(
            index=q,
            # A request that came due while the last window was being counted is sent now.
            arrival_at_s=max(opened_at_s + offset_s, time.monotonic()),
            prompt_tokens=min(int(requests.prompt_tokens[q]), limits.max_prompt_tokens),
            output_tokens=min(int(requests.output_tokens[q]), limits.max_completion_tokens),
            priority=int(requests.priority[q]),
            slo_s=ps_to_s(int(requests.ttft_slo_ps[q])) * limits.slo_scale,
            patience_s=patience_s,
            prefix_id=int(requests.prefix_id[q]),
            prefix_tokens=int(requests.prefix_tokens[q]),
            seed=self._seed,
        )
