"""vLLM's schedulers with their limits in our hands: `--scheduler-cls llmserve_steering.scheduler.SteeredScheduler`.

`SteeredScheduler` is vLLM's synchronous scheduler, `SteeredAsyncScheduler` the asynchronous one that GPUs use. They run
inside vLLM's engine process. Between iterations they read what is wanted from the folder that LLMSERVE_REAL_CONTROL_DIR
names, and write what they do. Batch cap and token budget are limits of vLLM's own scheduler; the KV budget takes free
blocks out of the pool; the speculation depth cuts n-gram drafts short.
"""

from __future__ import annotations

import json
import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from .control import (
    FOLDER_VARIABLE,
    TIMES_ATTRIBUTE,
    WANTED,
    Status,
    StatusWriter,
    Wanted,
    read_wanted,
)
from .versions import differences_of

STATUS_INTERVAL_S = 0.05
# vLLM is the process this runs in, not a package we depend on.
HOST = "vllm"
Scheduler: Any = import_module(f"{HOST}.v1.core.sched.scheduler").Scheduler
AsyncScheduler: Any = import_module(f"{HOST}.v1.core.sched.async_scheduler").AsyncScheduler


class Steering:
    """Steers the scheduler that it is mixed into, between iterations."""

    max_num_scheduled_tokens: int
    max_model_len: int
    running: list[Any]
    waiting: Any
    requests: dict[str, Any]
    vllm_config: Any
    cache_config: Any
    scheduler_config: Any
    kv_cache_manager: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        self._version = differences_of(import_module(HOST).__version__)
        super().__init__(*args, **options)
        self._folder = Path(os.environ[FOLDER_VARIABLE])
        self._folder.mkdir(parents=True, exist_ok=True)
        self._status = StatusWriter(self._folder)
        self._cap = self._max_cap = int(getattr(self, self._version.cap_attribute))
        self._max_budget = self.max_num_scheduled_tokens
        speculative = self.vllm_config.speculative_config
        self._max_depth = speculative.num_speculative_tokens if speculative else 0
        self._depth = self._max_depth
        self._pool = self.kv_cache_manager.block_pool
        self._num_blocks = self._pool.num_gpu_blocks - 1
        self._withheld: list[Any] = []
        self._wanted, self._seen_ns = Wanted(), 0
        self._iterations, self._preemptions, self._busy_s, self._said_at_s = 0, 0, 0.0, 0.0
        self._ended_at_s = 0.0
        self._open: dict[int, tuple[float, dict[str, Any]]] = {}
        """Iterations under way: when they were scheduled and what they compute."""
        self._added: dict[str, float] = {}
        self._log: TextIO | None = None
        self._log_name: str | None = None
        self._say()

    def schedule(self, *args: Any, **options: Any) -> Any:
        """One iteration's decisions, under the limits wanted now."""
        started_at_s = time.monotonic()
        self._obey()
        # Running requests are never evicted for a lower cap.
        cap = max(self._cap, len(self.running)) if self._version.cap_bounds_running else self._cap
        setattr(self, self._version.cap_attribute, cap)
        output = super().schedule(*args, **options)  # type: ignore[misc]
        self._preemptions += len(output.preempted_req_ids or ())
        if output.total_num_scheduled_tokens:
            work = self._describe(output) if self._log is not None else {}
            self._open[id(output)] = (started_at_s, work)
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """The end of an iteration: its tokens are on their way to the clients."""
        taken_at_s = time.monotonic()
        outputs = super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]
        ended_at_s = time.monotonic()
        scheduled_at_s, work = self._open.pop(id(scheduler_output), (ended_at_s, {}))
        # An iteration that was scheduled while another ran counts from the end of that one.
        started_at_s = max(scheduled_at_s, self._ended_at_s)
        self._iterations += 1
        self._busy_s += ended_at_s - started_at_s
        self._ended_at_s = ended_at_s
        if self._log is not None and work:
            told = getattr(model_runner_output, TIMES_ATTRIBUTE, {})
            times = {"scheduled": scheduled_at_s, "start": started_at_s, "taken": taken_at_s, "end": ended_at_s}
            self._record({**times, **told}, work)
        if not self.running:
            self._say()
        elif ended_at_s - self._said_at_s > STATUS_INTERVAL_S:
            self._say(soon=True)
        return outputs

    def add_request(self, request: Any) -> None:
        """Take a request over between iterations; while recording, note when it arrived."""
        if self._log is not None:
            # The request carries a wall-clock stamp, because another process may have made it.
            self._added[request.request_id] = request.arrival_time - time.time() + time.monotonic()
        super().add_request(request)  # type: ignore[misc]

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        """Keep as many drafts as are wanted."""
        for drafts in draft_token_ids.draft_token_ids:
            del drafts[self._depth :]
        super().update_draft_token_ids(draft_token_ids)  # type: ignore[misc]

    def _obey(self) -> None:
        try:
            changed_ns = (self._folder / WANTED).stat().st_mtime_ns
        except FileNotFoundError:
            return
        if changed_ns != self._seen_ns:
            self._seen_ns, self._wanted = changed_ns, read_wanted(self._folder)
            wanted = self._wanted
            self._cap = min(wanted.batch_cap or self._max_cap, self._max_cap)
            self.max_num_scheduled_tokens = min(wanted.token_budget or self._max_budget, self._max_budget)
            depth = self._max_depth if wanted.speculation_depth is None else wanted.speculation_depth
            self._depth = min(depth, self._max_depth)
            self._record_to(wanted.record_to)
            self._withhold()
            self._say()
        else:
            self._withhold()

    def _withhold(self) -> None:
        """Move towards the wanted pool: return blocks at once, and take blocks as they become free."""
        # A request of the greatest length must fit, or it would never be served.
        least = -(-self.max_model_len // self.cache_config.block_size)
        target = self._num_blocks - max(int(self._wanted.kv_budget_fraction * self._num_blocks), least)
        missing = max(target, 0) - len(self._withheld)
        if missing < 0:
            self._pool.free_blocks([self._withheld.pop() for _ in range(-missing)])
        elif missing > 0:
            take = min(missing, self._pool.get_num_free_blocks())
            self._withheld.extend(self._pool.get_new_blocks(take) if take else [])

    def _record_to(self, name: str | None) -> None:
        if name == self._log_name:
            return
        if self._log is not None:
            self._log.close()
        self._log_name, self._added = name, {}
        self._log = (self._folder / name).open("w", buffering=1, encoding="utf-8") if name else None

    def _describe(self, output: Any) -> dict[str, Any]:
        """What the iteration computes, in the words of a latency profile."""
        work = {"decoding": 0, "context": 0, "chunks": 0, "prefill_tokens": 0, "pairs": 0, "drafts": 0}
        first: list[str] = []
        for name, tokens in output.num_scheduled_tokens.items():
            request = self.requests[name]
            past = request.num_computed_tokens - tokens
            work["drafts"] += len(output.scheduled_spec_decode_tokens.get(name, ()))
            if past >= request.num_prompt_tokens and tokens + past >= request.num_tokens:
                work["decoding"] += 1
                work["context"] += past + tokens
                continue
            work["chunks"] += 1
            work["prefill_tokens"] += tokens
            work["pairs"] += tokens * past + tokens * (tokens + 1) // 2
            if request.num_output_tokens == 0 and past + tokens >= request.num_prompt_tokens:
                first.append(name)
        queue = {"running": len(self.running), "waiting": len(self.waiting)}
        return {**work, **queue, "admitted": len(output.scheduled_new_reqs), "first": first}

    def _record(self, times: dict[str, Any], work: dict[str, Any]) -> None:
        assert self._log is not None
        added, self._added = self._added, {}
        row = {**times, **work, "added": added}
        row["left"] = len(self.running) + len(self.waiting)
        self._log.write(json.dumps(row) + "\n")

    def _graph_max_tokens(self) -> int:
        """Largest iteration that was captured as a CUDA graph; 0 where none is."""
        compilation = self.vllm_config.compilation_config
        mode = getattr(compilation.cudagraph_mode, "name", "NONE")
        return 0 if mode == "NONE" else int(compilation.max_cudagraph_capture_size or 0)

    def _say(self, *, soon: bool = False) -> None:
        """Report the status: in a thread if `soon`, otherwise at once, for new wishes and an idle engine."""
        self._said_at_s = time.monotonic()
        status = Status(
            generation=self._wanted.generation,
            batch_cap=self._cap,
            token_budget=self.max_num_scheduled_tokens,
            speculation_depth=self._depth,
            num_blocks=self._num_blocks,
            withheld_blocks=len(self._withheld),
            max_batch_cap=self._max_cap,
            max_token_budget=self._max_budget,
            max_speculation_depth=self._max_depth,
            block_tokens=self.cache_config.block_size,
            max_model_len=self.max_model_len,
            vocabulary=self.vllm_config.model_config.get_vocab_size(),
            async_scheduling=bool(self.scheduler_config.async_scheduling),
            prefix_caching=bool(self.cache_config.enable_prefix_caching),
            graph_max_tokens=self._graph_max_tokens(),
            iterations=self._iterations,
            busy_s=self._busy_s,
            num_running=len(self.running),
            num_waiting=len(self.waiting),
            used_blocks=self._num_blocks - self._pool.get_num_free_blocks() - len(self._withheld),
            preemptions=self._preemptions,
        )
        (self._status.write_soon if soon else self._status.write)(status)


class SteeredScheduler(Steering, Scheduler):  # type: ignore[misc]
    """The synchronous scheduler, steered."""


class SteeredAsyncScheduler(Steering, AsyncScheduler):  # type: ignore[misc]
    """The asynchronous scheduler, steered. It cannot cut drafts, which the worker makes on its own."""
