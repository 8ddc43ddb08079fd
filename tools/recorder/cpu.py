"""Drives the whole vLLM engine on a CPU, in this process, and keeps what its scheduler decided.

Requests are handed over between iterations when they are due, as the engine's own loop does. The clock counts the CPU
seconds of this process, because other work on a shared machine would disturb a wall clock; idle time is skipped.
"""

from __future__ import annotations

import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tools.recorder.decisions import TIME_COLUMNS, DecisionLog, recording, request_number
from tools.recorder.scheduler_plans import SchedulerRun
from tools.recorder.scheduler_runs import describe, draw_run, prompts_of, save

FIRST_TOKEN_ID = 10
WARM_UP_TOKENS = (1, 40, 200, 600)
"""Prompts served before a run, because the first iterations of an engine are slow."""
SCHEDULER_OPTIONS = ("policy", "scheduler_reserve_full_isl", "long_prefill_token_threshold", "watermark")
POSITION = {name: i for i, name in enumerate(TIME_COLUMNS)}


class CpuClock:
    """CPU seconds of this process since the start of a run, and the idle time that was skipped."""

    def __init__(self) -> None:
        self.origin_s = time.process_time()

    def restart(self) -> None:
        self.origin_s = time.process_time()

    def now_s(self) -> float:
        return time.process_time() - self.origin_s

    def skip_to(self, at_s: float) -> None:
        """Nothing is to be done before `at_s`."""
        self.origin_s -= max(at_s - self.now_s(), 0.0)


def timed(scheduler: Any, log: DecisionLog, clock: CpuClock) -> Any:
    """A subclass that writes a row per iteration with the times around scheduling, execution and output."""

    class Timed(recording(scheduler, log)):  # type: ignore[misc]
        step = -1
        is_recording = False

        def schedule(self, *args: Any, **options: Any) -> Any:
            began_s = clock.now_s()
            log.look(self)
            output = super().schedule(*args, **options)
            if self.is_recording and output.total_num_scheduled_tokens:
                Timed.step = log.scheduled(self, output)
                log.times_s[Timed.step][:2] = [began_s, clock.now_s()]
            return output

        def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
            executed_s = clock.now_s()
            outputs = super().update_from_output(scheduler_output, model_runner_output)
            if self.is_recording and scheduler_output.total_num_scheduled_tokens:
                log.times_s[Timed.step][2:] = [executed_s, clock.now_s()]
            return outputs

    return Timed


class CpuEngine:
    """An engine for one run."""

    def __init__(self, run: SchedulerRun, model: Path) -> None:
        os.environ |= {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOGGING_LEVEL": "WARNING",
        }
        self.run, self.traffic = run, draw_run(run)
        self.log, self.clock = DecisionLog(), CpuClock()
        self.scheduler = timed(import_module("vllm.v1.core.sched.scheduler").Scheduler, self.log, self.clock)
        self.engine = self._start(model)
        self.token_times_s: list[list[float]] = [[] for _ in range(len(self.traffic))]

    def _start(self, model: Path) -> Any:
        engine = self.run.engine
        arguments = import_module("vllm.engine.arg_utils").EngineArgs(
            model=str(model),
            skip_tokenizer_init=True,
            dtype="float32",
            enforce_eager=True,
            block_size=self.run.block_size,
            max_model_len=self.run.max_model_len,
            max_num_seqs=engine["max_num_seqs"],
            max_num_batched_tokens=engine["mnbt"],
            num_gpu_blocks_override=engine["blocks"],
            enable_prefix_caching=engine.get("enable_prefix_caching", True),
            speculative_config=engine.get("speculative_config"),
            async_scheduling=False,
            scheduler_cls=self.scheduler,
            **{_argument(name): engine[name] for name in SCHEDULER_OPTIONS if name in engine},
        )
        return import_module("vllm.v1.engine.llm_engine").LLMEngine.from_engine_args(arguments)

    def warm_up(self) -> None:
        """Serve a few requests of other lengths and forget them."""
        for i, count in enumerate(WARM_UP_TOKENS):
            self._add(f"{i}-warm", [FIRST_TOKEN_ID + i] * min(count, self.run.max_model_len // 2), 12, 0)
        while self.engine.has_unfinished_requests():
            self.engine.step()
        self.engine.reset_prefix_cache()

    def play(self) -> None:
        """Hand requests over when they are due and step until all are answered."""
        vocabulary = self.engine.model_config.get_vocab_size()
        prompts = prompts_of(self.traffic, int(self.run.traffic["seed"]), (FIRST_TOKEN_ID, vocabulary))
        arrivals_s, sent = self.traffic.arrival_s, 0
        self.scheduler.is_recording = True
        self.clock.restart()
        while sent < len(prompts) or self.engine.has_unfinished_requests():
            while sent < len(prompts) and arrivals_s[sent] <= self.clock.now_s():
                priority = int(self.traffic.priority[sent])
                self._add(f"{sent:05}", prompts[sent], int(self.traffic.output_tokens[sent]), priority)
                sent += 1
            if self.engine.has_unfinished_requests():
                self._step()
            else:
                self.clock.skip_to(float(arrivals_s[sent]))

    def _step(self) -> None:
        outputs = self.engine.step()
        at_s = self.log.times_s[-1][POSITION["t_exec_end"]]
        for output in outputs:
            times_s = self.token_times_s[request_number(output.request_id)]
            times_s += [at_s] * len(output.outputs[0].token_ids)
            if output.finished:
                self.log.finished(len(self.log.steps) - 1, output.request_id)

    def _add(self, name: str, prompt: list[int], output_tokens: int, priority: int) -> None:
        module = import_module("vllm.sampling_params")
        options = module.SamplingParams(
            max_tokens=output_tokens,
            ignore_eos=True,
            temperature=0.0,
            detokenize=False,
            output_kind=module.RequestOutputKind.DELTA,
        )
        self.engine.add_request(name, {"prompt_token_ids": prompt}, options, priority=priority)


def _argument(name: str) -> str:
    return "scheduling_policy" if name == "policy" else name


def record_cpu(run: SchedulerRun, model: Path, folder: Path) -> dict[str, Any]:
    """Start an engine, play one run and write its rows; returns a summary."""
    engine = CpuEngine(run, model)
    engine.warm_up()
    load = os.getloadavg()[0]
    engine.play()
    times_s = [np.array(times) for times in engine.token_times_s]
    save(run, engine.traffic, engine.traffic.arrival_s, times_s, engine.log, folder)
    describe(run, folder, clock="process_cpu", model=model.name, load1=round(load, 2))
    preemptions = sum(event[2] for event in engine.log.events)
    summary = {"steps": len(engine.log.steps), "requests": len(times_s), "preemptions": preemptions}
    return {**summary, "took_s": round(float(max(times[-1] for times in times_s)), 1)}
