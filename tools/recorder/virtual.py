"""Steps vLLM's own scheduler and KV-cache manager on a virtual clock: no model runs, an iteration takes a known time.

The loop is that of vLLM's engine core: one iteration at a time, or, with asynchronous scheduling, a second one that is
scheduled while the first executes.
"""

from __future__ import annotations

from collections import deque
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tools.recorder.decisions import DecisionLog, recording, request_number
from tools.recorder.scheduler_plans import SchedulerRun
from tools.recorder.scheduler_runs import describe, draw_run, prompts_of, save

MODEL = Path(__file__).parent / "models" / "llama-3-8b"
PS_PER_S = 10**12
PS_PER_US = 10**6
FIRST_TOKEN_ID, LAST_TOKEN_ID = 1_000, 120_000
DRAFT_ID = 7
WORK = {
    "per_dec": "decode_tokens",
    "per_ctx": "decode_ctx",
    "per_pf": "prefill_tokens",
    "per_pfwork": "prefill_work",
}
"""Cost constants and the columns they multiply."""
ENGINE_WORDS = {"max_num_seqs", "blocks", "mnbt", "enable_prefix_caching", "speculative_config", "async_scheduling"}
"""Options that are not passed on to vLLM's scheduler configuration under the same name."""


def build_scheduler(run: SchedulerRun, log: DecisionLog) -> Any:
    """A scheduler with the options of the run, as vLLM's engine core builds one."""
    vllm_config = build_config(run)
    # The configuration cannot be asked: on a machine without a GPU vLLM switches the option off.
    is_async = bool(run.engine.get("async_scheduling", False))
    module, kind = ("async_scheduler", "AsyncScheduler") if is_async else ("scheduler", "Scheduler")
    interface = import_module("vllm.v1.kv_cache_interface")
    layers = interface.FullAttentionSpec(
        block_size=run.block_size, num_kv_heads=1, head_size=1, dtype=import_module("torch").float32
    )
    pool = interface.KVCacheConfig(run.engine["blocks"], [], [interface.KVCacheGroupSpec(["layer"], layers)])
    structured = import_module("vllm.v1.structured_output").StructuredOutputManager(vllm_config)
    scheduler = recording(getattr(import_module(f"vllm.v1.core.sched.{module}"), kind), log)
    return scheduler(vllm_config, pool, structured, block_size=run.block_size)


def build_config(run: SchedulerRun) -> Any:
    """Return the configuration that vLLM makes of the run."""
    config, engine = import_module("vllm.config"), run.engine
    model = config.ModelConfig(
        model=str(MODEL), dtype="float32", max_model_len=run.max_model_len, skip_tokenizer_init=True
    )
    cache = config.CacheConfig(
        block_size=run.block_size, enable_prefix_caching=engine.get("enable_prefix_caching", True)
    )
    cache.num_gpu_blocks = engine["blocks"]
    scheduling = config.SchedulerConfig(
        max_num_seqs=engine["max_num_seqs"],
        max_num_batched_tokens=engine["mnbt"],
        max_model_len=run.max_model_len,
        is_encoder_decoder=False,
        async_scheduling=bool(engine.get("async_scheduling", False)),
        **{name: value for name, value in engine.items() if name not in ENGINE_WORDS},
    )
    parallel = config.ParallelConfig()
    return config.VllmConfig(
        model_config=model,
        cache_config=cache,
        scheduler_config=scheduling,
        parallel_config=parallel,
        speculative_config=_speculation(run, model, parallel),
    )


def _speculation(run: SchedulerRun, model: Any, parallel: Any) -> Any:
    wanted = run.engine.get("speculative_config")
    if wanted is None:
        return None
    extra = {"model": str(MODEL)} if wanted["method"] == "draft_model" else {}
    kind = import_module("vllm.config").SpeculativeConfig
    return kind(**wanted, **extra, target_model_config=model, target_parallel_config=parallel)


class VirtualEngine:
    """The engine core's loop around a scheduler, on a clock of whole picoseconds."""

    def __init__(self, run: SchedulerRun) -> None:
        self.run, self.traffic, self.log = run, draw_run(run), DecisionLog()
        self.scheduler = build_scheduler(run, self.log)
        self.depth = 2 if run.engine.get("async_scheduling") else 1
        self.drafts = run.engine.get("speculative_config", {}).get("num_speculative_tokens", 0)
        self.random = np.random.default_rng((int(run.traffic["seed"]), 2))
        self.arrival_ps = np.rint(self.traffic.arrival_s * 1e6).astype(np.int64) * PS_PER_US
        self.now_ps = self.free_ps = 0
        self.next_request = 0
        self.changes = list(run.changes)
        self.executing: deque[tuple[int, int, Any, dict[str, bool]]] = deque()
        self.token_times_ps: list[list[int]] = [[] for _ in range(len(self.traffic))]
        self.requests = self._requests()

    def _requests(self) -> list[Any]:
        hashing = import_module("vllm.utils.hashing").sha256
        blocks = import_module("vllm.v1.core.kv_cache_utils")
        blocks.init_none_hash(hashing)
        request = import_module("vllm.v1.request").Request
        sampling = import_module("vllm.sampling_params").SamplingParams
        priority = self.traffic.priority if self.traffic.priority is not None else np.zeros(len(self.traffic), int)
        seed = int(self.run.traffic["seed"])
        return [
            request(
                # vLLM orders requests of one instant by name.
                request_id=f"{i:05}",
                prompt_token_ids=prompt,
                sampling_params=sampling(max_tokens=int(self.traffic.output_tokens[i]), ignore_eos=True),
                pooling_params=None,
                arrival_time=float(self.arrival_ps[i]) / PS_PER_S,
                priority=int(priority[i]),
                block_hasher=blocks.get_request_block_hasher(self.run.block_size, hashing),
            )
            for i, prompt in enumerate(prompts_of(self.traffic, seed, (FIRST_TOKEN_ID, LAST_TOKEN_ID)))
        ]

    def play(self) -> None:
        """Serve every request."""
        while True:
            self._take_arrivals()
            has_work = self.scheduler.has_unfinished_requests()
            is_scheduled = has_work and self._schedule()
            if is_scheduled and len(self.executing) < self.depth:
                continue
            if self.executing:
                self._complete()
            elif not has_work:
                if self.next_request == len(self.requests):
                    return
                self.now_ps = int(self.arrival_ps[self.next_request])

    def _take_arrivals(self) -> None:
        while self.next_request < len(self.requests) and self.arrival_ps[self.next_request] <= self.now_ps:
            self.scheduler.add_request(self.requests[self.next_request])
            self.next_request += 1
        while self.changes and self.changes[0][0] * PS_PER_S <= self.now_ps:
            limits = self.changes.pop(0)[1]
            self.scheduler.max_num_active_reqs = limits.get("max_num_seqs", self.scheduler.max_num_active_reqs)
            self.scheduler.max_num_scheduled_tokens = limits.get("mnbt", self.scheduler.max_num_scheduled_tokens)

    def _schedule(self) -> bool:
        """Schedule an iteration; False if nothing could be scheduled."""
        self.log.look(self.scheduler)
        output = self.scheduler.schedule()
        if output.total_num_scheduled_tokens == 0:
            return False
        step = self.log.scheduled(self.scheduler, output)
        start_ps = max(self.now_ps, self.free_ps)
        self.free_ps = start_ps + self._duration_ps()
        self.log.times_s[step] = [self.now_ps, start_ps, self.free_ps, self.free_ps]
        is_emitting = {name: not self.scheduler.requests[name].is_prefill_chunk for name in output.num_scheduled_tokens}
        self.executing.append((step, self.free_ps, output, is_emitting))
        return True

    def _duration_ps(self) -> int:
        ps = {name: round(seconds * PS_PER_S) for name, seconds in self.run.cost.items()}
        return ps["base"] + sum(ps[name] * self.log.work[column] for name, column in WORK.items())

    def _complete(self) -> None:
        """Hand the tokens of the oldest iteration to the scheduler."""
        step, self.now_ps, output, is_emitting = self.executing.popleft()
        names = list(output.num_scheduled_tokens)
        tokens = [self._tokens(output, name) if is_emitting[name] else [] for name in names]
        outputs = import_module("vllm.v1.outputs")
        result = outputs.ModelRunnerOutput(names, {name: i for i, name in enumerate(names)}, tokens)
        for engine_outputs in self.scheduler.update_from_output(output, result).values():
            for emitted in engine_outputs.outputs:
                self.token_times_ps[request_number(emitted.request_id)] += [self.now_ps] * len(emitted.new_token_ids)
                if emitted.finish_reason is not None:
                    self.log.finished(step, emitted.request_id)
        if self.drafts and self.depth == 1:
            drafts = outputs.DraftTokenIds(names, [[DRAFT_ID] * self.drafts for _ in names])
            self.scheduler.update_draft_token_ids(drafts)

    def _tokens(self, output: Any, name: str) -> list[int]:
        """The tokens of a forward pass: accepted drafts, then one of the model's own."""
        drafts = len(output.scheduled_spec_decode_tokens.get(name, ()))
        accepted = 0
        # vLLM pads an admission of one token with drafts that nobody proposed.
        is_padded = drafts > 0 and name in output.scheduled_cached_reqs.resumed_req_ids
        while not is_padded and accepted < drafts and self.random.random() < self.run.acceptance:
            accepted += 1
        position = len(self.token_times_ps[request_number(name)])
        return [(FIRST_TOKEN_ID + position + i) % LAST_TOKEN_ID for i in range(accepted + 1)]


def record_virtual(run: SchedulerRun, folder: Path) -> dict[str, Any]:
    """Play one run and write its rows; returns a summary."""
    engine = VirtualEngine(run)
    engine.play()
    log = engine.log
    log.times_s = [[at_ps / PS_PER_S for at_ps in row] for row in log.times_s]
    times_s = [np.array(times_ps) / PS_PER_S for times_ps in engine.token_times_ps]
    save(run, engine.traffic, engine.arrival_ps / PS_PER_S, times_s, log, folder)
    describe(run, folder, cost=dict(run.cost), acceptance=run.acceptance, clock="virtual")
    preemptions = sum(event[2] for event in log.events)
    return {"steps": len(log.steps), "requests": len(times_s), "preemptions": preemptions}
