"""Batch jobs that wait to be admitted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmserve_env.fleet.sections import BatchSpec
from llmserve_env.fleet.traffic import BatchJobs


@dataclass(slots=True)
class Backlog:
    """Jobs in order of arrival, which is that of deadlines; those before `next_job` are admitted or expired."""

    jobs: BatchJobs
    spec: BatchSpec | None
    next_job: int = 0
    expired: int = 0
    carry: float = 0.0
    """Part of a job that the last window's rate left over."""

    def admit(self, now_s: float, window_s: float, share: float) -> range:
        """Jobs that this share of the highest rate admits in the window that begins now; late ones are dropped."""
        if self.spec is None:
            return range(0)
        arrived = int(np.searchsorted(self.jobs.arrival_s, now_s, side="right"))
        in_time = max(int(np.searchsorted(self.jobs.deadline_s, now_s, side="right")), self.next_job)
        self.expired += in_time - self.next_job
        self.next_job = in_time
        self.carry += share * self.spec.max_admission_rps * window_s
        count = min(int(self.carry), arrived - self.next_job)
        self.carry = min(self.carry - count, 1.0)
        admitted = range(self.next_job, self.next_job + count)
        self.next_job += count
        return admitted

    def waiting(self, now_s: float) -> int:
        """Jobs that have arrived and are neither admitted nor expired."""
        return int(np.searchsorted(self.jobs.arrival_s, now_s, side="right")) - self.next_job

    def deadline_in_s(self, now_s: float) -> float:
        """Until the first deadline of a waiting job; the whole deadline if none waits."""
        if self.spec is None:
            return 0.0
        if self.waiting(now_s) <= 0:
            return self.spec.deadline_s
        return max(float(self.jobs.deadline_s[self.next_job]) - now_s, 0.0)
