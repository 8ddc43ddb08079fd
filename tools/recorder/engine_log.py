"""vLLM's scheduler, writing down every iteration: `scheduler_cls="tools.recorder.engine_log.RecordingScheduler"`.

Runs inside vLLM's engine process. A file in the folder that LLMSERVE_RECORDER_DIR names tells it which run goes on and
which limits change when; when the run ends it writes its rows beside that file. `time.monotonic` is one clock for all
processes of a machine.
"""

from __future__ import annotations

import json
import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tools.recorder.columns import COLUMNS, CONTROL, FOLDER_VARIABLE

_POSITION = {name: i for i, name in enumerate(COLUMNS)}

# vLLM is the process this runs in, not a package we depend on.
AsyncScheduler: Any = import_module("vllm.v1.core.sched.async_scheduler").AsyncScheduler


class LaunchTimer:
    """Times the forward passes of the worker in this process: host time of the calls, GPU time between two events."""

    def __init__(self) -> None:
        self.torch = import_module("torch")
        self.spans: list[list[Any]] = []
        worker = import_module("vllm.v1.worker.gpu_worker").Worker
        execute, sample = worker.execute_model, worker.sample_tokens

        def timed_execute(worker_self: Any, scheduler_output: Any) -> Any:
            if scheduler_output.total_num_scheduled_tokens == 0:
                return execute(worker_self, scheduler_output)
            began, start = time.monotonic(), self._mark()
            result = execute(worker_self, scheduler_output)
            self.spans.append([began, time.monotonic(), start, self._mark()])
            return result

        def timed_sample(worker_self: Any, *args: Any, **options: Any) -> Any:
            result = sample(worker_self, *args, **options)
            if self.spans:
                self.spans[-1][1], self.spans[-1][3] = time.monotonic(), self._mark()
            return result

        worker.execute_model, worker.sample_tokens = timed_execute, timed_sample

    def _mark(self) -> Any:
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def take(self) -> list[tuple[float, float, float]]:
        """(launch began, launch ended, GPU milliseconds) of every forward pass since the last call."""
        self.torch.cuda.synchronize()
        spans, self.spans = self.spans, []
        return [(began, ended, start.elapsed_time(end)) for began, ended, start, end in spans]


class RecordingScheduler(AsyncScheduler):  # type: ignore[misc]
    """The stock scheduler with a log; limits change only where the run's plan says so."""

    max_num_running_reqs: int
    max_num_scheduled_tokens: int

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._folder = Path(os.environ[FOLDER_VARIABLE])
        self._timer = LaunchTimer()
        self._limits = (self.max_num_running_reqs, self.max_num_scheduled_tokens)
        self._cap = self.max_num_running_reqs
        self._pool = self.kv_cache_manager.block_pool
        self._withheld: list[Any] = []
        self._blocks = self._pool.num_gpu_blocks
        self._seen_ns = 0
        self._run: dict[str, Any] | None = None
        self._changes: list[Any] = []
        self._rows: list[list[float]] = []
        self._open: dict[int, list[float]] = {}
        described = {"num_blocks": self._pool.num_gpu_blocks, "block_size": self.cache_config.block_size}
        (self._folder / "engine.json").write_text(json.dumps(described), encoding="utf-8")

    def schedule(self, *args: Any, **options: Any) -> Any:
        began = time.monotonic()
        self._look(began)
        # A lowered cap stops admissions and waits; vLLM asserts that no more are running than its attribute says.
        self.max_num_running_reqs = max(self._cap, len(self.running))
        self._withhold()
        output = super().schedule(*args, **options)
        if self._run is not None and output.total_num_scheduled_tokens:
            self._write_row(output, began, time.monotonic())
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        began = time.monotonic()
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        row = self._open.pop(id(scheduler_output), None)
        if row is not None:
            row[_POSITION["t_output"]], row[_POSITION["t_output_end"]] = began, time.monotonic()
        return outputs

    def _write_row(self, output: Any, began: float, ended: float) -> None:
        decoding = context = prefill = work = 0
        requests = self.requests
        for name, tokens in output.num_scheduled_tokens.items():
            # Already advanced by the tokens of this iteration.
            after = requests[name].num_computed_tokens
            if tokens == 1:
                decoding += 1
                context += after
            else:
                prefill += tokens
                work += tokens * (after - tokens) + tokens * (tokens + 1) // 2
        row = [0.0] * len(COLUMNS)
        row[: _POSITION["t_launch"]] = [
            began,
            ended,
            len(self.running),
            len(self.waiting),
            output.total_num_scheduled_tokens,
            len(output.num_scheduled_tokens),
            prefill,
            work,
            context,
            self._pool.get_num_free_blocks(),
            decoding,
            len(output.scheduled_new_reqs),
            len(output.preempted_req_ids or ()),
        ]
        self._rows.append(row)
        self._open[id(output)] = row

    def _look(self, now: float) -> None:
        """Follow the control file: a new run begins, limits change, or the run is over and its rows are written."""
        try:
            changed_ns = (self._folder / CONTROL).stat().st_mtime_ns
        except FileNotFoundError:
            return
        if changed_ns != self._seen_ns:
            self._seen_ns = changed_ns
            wanted = json.loads((self._folder / CONTROL).read_text(encoding="utf-8"))
            self._finish()
            self._run = wanted if wanted["run"] else None
            self._changes = sorted(wanted.get("changes", []), key=lambda change: change[0])
            self._cap, self.max_num_scheduled_tokens = self._limits
            self._blocks = self._pool.num_gpu_blocks
        while self._run and self._changes and now - self._run["origin"] >= self._changes[0][0]:
            _, change = self._changes.pop(0)
            self._cap = change.get("batch_cap", self._cap)
            self.max_num_scheduled_tokens = change.get("token_budget", self.max_num_scheduled_tokens)
            self._blocks = change.get("blocks", self._blocks)

    def _withhold(self) -> None:
        """Take free blocks out of the pool, or give them back, until it has as many as the plan says."""
        missing = (self._pool.num_gpu_blocks - self._blocks) - len(self._withheld)
        if missing < 0:
            self._pool.free_blocks([self._withheld.pop() for _ in range(-missing)])
        elif missing > 0:
            take = min(missing, self._pool.get_num_free_blocks())
            self._withheld.extend(self._pool.get_new_blocks(take) if take else [])

    def _finish(self) -> None:
        """Write the rows of the run that has ended."""
        launches = self._timer.take()
        if self._run is None:
            return
        rows = np.array(self._rows)
        # The forward pass of an iteration begins after its scheduling and before the next one's.
        spans = np.array(launches)
        for row in rows:
            at = int(np.searchsorted(spans[:, 0], row[_POSITION["t_sched_end"]]))
            if at < len(spans):
                row[_POSITION["t_launch"]], row[_POSITION["t_launch_end"]], row[_POSITION["gpu_ms"]] = spans[at]
        np.savez_compressed(self._folder / f"{self._run['run']}.steps.npz", rows=rows)
        self._rows, self._open = [], {}
