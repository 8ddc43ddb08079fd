"""Outcomes of requests from the engine's records, which every backend keeps."""

from __future__ import annotations

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.layout import ABANDONED, FINISHED, REJECTED
from llmserve_env.request_outcomes import Ending, RequestOutcomes
from llmserve_env.tasks.task import Task
from llmserve_env.units import NEVER_PS, PS_PER_MS, PS_PER_S

_ENDINGS = {FINISHED: Ending.FINISHED, REJECTED: Ending.REJECTED, ABANDONED: Ending.ABANDONED}


def outcomes_of(task: Task, requests: Array, progress: Array, now_ps: int) -> RequestOutcomes:
    """What became of requests that have arrived (`REQUEST_DTYPE`, `PROGRESS_DTYPE`) by now."""
    arrival_ps, first_ps, end_ps = requests["arrival_at_ps"], progress["first_token_at_ps"], progress["finished_at_ps"]
    ending = np.full(len(requests), Ending.UNDER_WAY, np.int8)
    for status, name in _ENDINGS.items():
        ending[progress["status"] == status] = name
    is_finished, is_lost = ending == Ending.FINISHED, ending >= Ending.REJECTED
    tokens = requests["output_tokens"].astype(np.int64)
    slo_ps, class_index = requests["slo_at_ps"] - arrival_ps, requests["priority"].astype(np.int8)
    waited = np.where(is_lost, np.inf, np.nan)
    streamed_ps = (end_ps - first_ps) / np.maximum(tokens - 1, 1)
    return RequestOutcomes(
        arrival_s=arrival_ps / PS_PER_S,
        class_index=class_index,
        prompt_tokens=requests["prompt_tokens"].astype(np.int64),
        output_tokens=tokens,
        tier=progress["tier"].copy(),
        ending=ending,
        age_ms=(now_ps - arrival_ps) / PS_PER_MS,
        ttft_ms=np.where(first_ps >= 0, (first_ps - arrival_ps) / PS_PER_MS, waited),
        tpot_ms=np.where(is_finished & (tokens > 1), streamed_ps / PS_PER_MS, np.nan),
        e2e_ms=np.where(is_finished, (end_ps - arrival_ps) / PS_PER_MS, waited),
        # A request without a promise has its deadline beyond any episode.
        ttft_slo_ms=np.where(requests["slo_at_ps"] >= NEVER_PS, np.inf, slo_ps / PS_PER_MS),
        tpot_slo_ms=_promised(task, "tpot_slo_ms")[class_index],
        e2e_slo_ms=_promised(task, "e2e_slo_ms")[class_index],
    )


def _promised(task: Task, field: str) -> Array:
    """A promise per class in milliseconds, infinite where none is made."""
    promises = (getattr(service, field) for service in task.workload.classes)
    return np.array([np.inf if promised is None else promised for promised in promises])
