"""What a scheduler of vLLM decided, iteration by iteration, as rows: the log behind the recorded decisions.

Runs in the process of vLLM, where only numpy can be counted on beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

DECODE, ADMITTED, RESUMED, CONTINUED = range(4)
"""Kinds of an item: a decode, a first admission, an admission after a preemption, a later chunk of a prefill."""
STEP_COLUMNS = (
    "running_before",
    "waiting_before",
    "running_after",
    "waiting_after",
    "prefill_reqs",
    "prefill_tokens",
    "decode_reqs",
    "decode_tokens",
    "spec_tokens",
    "free_before",
    "free_after",
    "decode_ctx",
    "prefill_work",
    "max_running",
    "budget",
)
TIME_COLUMNS = ("t_sched", "t_sched_end", "t_exec_end", "t_update_end")
ITEM_COLUMNS = ("step", "req", "n_tokens", "computed_before", "kind", "spec", "pos")
EVENT_COLUMNS = ("step", "req", "is_preemption")


def request_number(name: str) -> int:
    """Requests are named by their row; vLLM may append a suffix of its own."""
    return int(name.split("-", 1)[0])


class DecisionLog:
    """Rows of one run. Empty iterations have no row; a preemption counts with the next iteration that has one."""

    def __init__(self) -> None:
        self.steps: list[list[int]] = []
        self.times_s: list[list[float]] = []
        self.items: list[tuple[int, ...]] = []
        self.events: list[tuple[int, int, int]] = []
        self.work = dict.fromkeys(("decode_tokens", "decode_ctx", "prefill_tokens", "prefill_work"), 0)
        """Of the iteration logged last."""
        self.before: tuple[int, int, int] = (0, 0, 0)

    def preempted(self, name: str) -> None:
        """A request lost its blocks while the next iteration was scheduled."""
        self.events.append((len(self.steps), request_number(name), 1))

    def finished(self, step: int, name: str) -> None:
        """A request got its last token with the output of an iteration."""
        self.events.append((step, request_number(name), 0))

    def look(self, scheduler: Any) -> None:
        """Note queues and free blocks before scheduling."""
        self.before = (len(scheduler.running), len(scheduler.waiting), free_blocks(scheduler))

    def scheduled(self, scheduler: Any, output: Any) -> int:
        """Write the rows of an iteration that has just been scheduled; returns its number."""
        step = len(self.steps)
        admitted = {request.req_id for request in output.scheduled_new_reqs}
        resumed = set(output.scheduled_cached_reqs.resumed_req_ids)
        counts = dict.fromkeys(STEP_COLUMNS, 0)
        for pos, (name, tokens) in enumerate(output.num_scheduled_tokens.items()):
            request = scheduler.requests[name]
            # Already advanced by the tokens of this iteration.
            past = request.num_computed_tokens - tokens
            drafts = len(output.scheduled_spec_decode_tokens.get(name, ()))
            kind = self._kind(request, past, name in admitted, name in resumed)
            self.items.append((step, request_number(name), tokens, past, kind, drafts, pos))
            counts["spec_tokens"] += drafts
            if kind == DECODE:
                counts["decode_reqs"] += 1
                counts["decode_tokens"] += tokens
                counts["decode_ctx"] += past + tokens
            else:
                counts["prefill_reqs"] += 1
                counts["prefill_tokens"] += tokens
                counts["prefill_work"] += tokens * past + tokens * (tokens + 1) // 2
        counts["running_before"], counts["waiting_before"], counts["free_before"] = self.before
        counts["running_after"], counts["waiting_after"] = len(scheduler.running), len(scheduler.waiting)
        counts["free_after"] = free_blocks(scheduler)
        counts["max_running"], counts["budget"] = scheduler.max_num_active_reqs, scheduler.max_num_scheduled_tokens
        self.work = {name: counts[name] for name in self.work}
        self.steps.append([counts[name] for name in STEP_COLUMNS])
        self.times_s.append([0.0] * len(TIME_COLUMNS))
        return step

    @staticmethod
    def _kind(request: Any, past: int, is_admitted: bool, is_resumed: bool) -> int:
        if is_admitted:
            return ADMITTED
        if is_resumed:
            return RESUMED
        # The last known token of a request that already answers is a decode, also after a preemption.
        return DECODE if past >= request.num_prompt_tokens and past + 1 >= request.num_tokens else CONTINUED

    def save(self, path: Path, **requests: Any) -> None:
        """Write the rows beside the columns of the requests."""
        np.savez_compressed(
            path,
            steps=np.array(self.steps, np.int64).reshape(-1, len(STEP_COLUMNS)),
            times_s=np.array(self.times_s).reshape(-1, len(TIME_COLUMNS)),
            items=np.array(self.items, np.int32).reshape(-1, len(ITEM_COLUMNS)),
            events=np.array(self.events, np.int32).reshape(-1, len(EVENT_COLUMNS)),
            **requests,
        )


def free_blocks(scheduler: Any) -> int:
    """Blocks of the KV pool that no request holds."""
    return int(scheduler.kv_cache_manager.block_pool.get_num_free_blocks())


def recording(scheduler: Any, log: DecisionLog) -> Any:
    """A subclass that notes preemptions in their order, which the output of an iteration does not keep."""

    class Recorded(scheduler):  # type: ignore[misc]
        def _preempt_request(self, request: Any, *args: Any, **options: Any) -> Any:
            log.preempted(request.request_id)
            return super()._preempt_request(request, *args, **options)

    return Recorded
