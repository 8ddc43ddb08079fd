"""Drives vLLM on a GPU under planned traffic and keeps what its clients see."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tools.recorder.columns import CONTROL, FOLDER_VARIABLE
from tools.recorder.plans import EnginePlan, Run
from tools.recorder.traffic import Traffic, draw

MODELS = Path(__file__).parent / "models"
SCHEDULER = "tools.recorder.engine_log.RecordingScheduler"
LEAD_S = 0.5
"""Between starting a run and its first arrival."""
SETTLE_S = 1.0
RUN_LIMIT_S = 150.0
FIRST_TOKEN_ID, LAST_TOKEN_ID = 1_000, 120_000


def start_engine(plan: EnginePlan, folder: Path) -> Any:
    """An `AsyncLLM` with random weights and the recording scheduler."""
    os.environ |= {
        FOLDER_VARIABLE: str(folder),
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "INFO",
    }
    arguments = import_module("vllm.engine.arg_utils").AsyncEngineArgs(
        model=str(MODELS / plan.model),
        load_format="dummy",
        skip_tokenizer_init=True,
        quantization=plan.quantization,
        max_num_seqs=plan.max_num_seqs,
        max_num_batched_tokens=plan.max_num_batched_tokens,
        max_model_len=plan.max_model_len,
        gpu_memory_utilization=plan.gpu_memory_utilization,
        scheduler_cls=SCHEDULER,
        async_scheduling=True,
        disable_log_stats=True,
    )
    return import_module("vllm.v1.engine.async_llm").AsyncLLM.from_engine_args(arguments)


class Client:
    """Sends the requests of one run and notes when each of their tokens came."""

    def __init__(self, engine: Any, traffic: Traffic, run: Run) -> None:
        self.engine, self.traffic, self.run = engine, traffic, run
        self.random = np.random.default_rng(run.seed + 1_000_000)
        self.sent = np.zeros(len(traffic))
        self.token_times: list[list[float]] = [[] for _ in range(len(traffic))]
        self.origin = 0.0
        module = import_module("vllm.sampling_params")
        self.sampling, self.delta = module.SamplingParams, module.RequestOutputKind.DELTA

    async def play(self, origin: float) -> None:
        """Send everything at its time; returns when the last token has come."""
        self.origin = origin
        tasks = [asyncio.create_task(self._request(i)) for i in range(len(self.traffic))]
        await asyncio.wait_for(asyncio.gather(*tasks), RUN_LIMIT_S)

    async def _request(self, i: int) -> None:
        prompt = self.random.integers(FIRST_TOKEN_ID, LAST_TOKEN_ID, int(self.traffic.prompt_tokens[i])).tolist()
        options = self.sampling(
            max_tokens=int(self.traffic.output_tokens[i]),
            ignore_eos=True,
            temperature=0.0,
            detokenize=False,
            output_kind=self.delta,
        )
        await asyncio.sleep(max(self.origin + self.traffic.arrival_s[i] - time.monotonic(), 0.0))
        self.sent[i] = time.monotonic() - self.origin
        name = f"{self.run.name}-{i}"
        async for output in self.engine.generate({"prompt_token_ids": prompt}, options, name):
            now = time.monotonic() - self.origin
            self.token_times[i] += [now] * len(output.outputs[0].token_ids)


def announce(folder: Path, run: Run | None, origin: float) -> None:
    """Tell the scheduler which run goes on; it reads the file when it is replaced as a whole."""
    partial = folder / f"{CONTROL}.new"
    changes = [list(change) for change in run.changes] if run else []
    partial.write_text(json.dumps({"run": run.name if run else None, "origin": origin, "changes": changes}))
    partial.replace(folder / CONTROL)


async def record_run(engine: Any, run: Run, folder: Path) -> dict[str, Any]:
    """Play one run; its requests and the engine's rows are written into the folder."""
    traffic = draw(run.traffic, run.seed, run.duration_s, run.options)
    client = Client(engine, traffic, run)
    await engine.reset_prefix_cache()
    origin = time.monotonic() + LEAD_S
    announce(folder, run, origin)
    await client.play(origin)
    announce(folder, None, origin)
    # The scheduler looks at the file when it schedules next.
    await Client(engine, draw("fixed", 0, 0.1, {"prompt_tokens": 16, "output_tokens": 2}), run).play(time.monotonic())
    counts = np.array([len(times) for times in client.token_times])
    if not np.array_equal(counts, traffic.output_tokens):
        raise RuntimeError(f"{run.name}: {int((counts != traffic.output_tokens).sum())} answers have another length")
    np.savez_compressed(
        folder / f"{run.name}.requests.npz",
        arrival=traffic.arrival_s,
        sent=client.sent,
        prompt_len=traffic.prompt_tokens,
        out_len=traffic.output_tokens,
        token_times=np.concatenate(client.token_times).astype(np.float32),
    )
    lateness = client.sent - traffic.arrival_s
    first = np.array([times[0] for times in client.token_times])
    return {
        "requests": len(traffic),
        "ttft_mean_ms": round(float((first - traffic.arrival_s).mean()) * 1e3, 1),
        "lateness_p99_ms": round(float(np.quantile(lateness, 0.99)) * 1e3, 1),
        "origin": origin,
    }


async def record_engine(plan: EnginePlan, folder: Path, runs: Sequence[Run]) -> None:
    """Start an engine, warm it up, and record its runs."""
    began = time.monotonic()
    engine = start_engine(plan, folder)
    print(f"{plan.name}: started after {time.monotonic() - began:.0f} s", flush=True)
    warm = Run("warm", "burst", 1, 6.0)
    await Client(engine, draw(warm.traffic, warm.seed, warm.duration_s, {}), warm).play(time.monotonic())
    described = json.loads((folder / "engine.json").read_text(encoding="utf-8"))
    for run in runs:
        summary = await record_run(engine, run, folder)
        content = {"plan": plan.name, "engine": engine_facts(plan), **described, "run": asdict(run), **summary}
        (folder / f"{run.name}.json").write_text(json.dumps(content), encoding="utf-8")
        print(f"{run.name}: {summary} at {time.monotonic() - began:.0f} s", flush=True)
        await asyncio.sleep(SETTLE_S)
    engine.shutdown()


def engine_facts(plan: EnginePlan) -> dict[str, Any]:
    """What the engine was started with."""
    facts = asdict(plan)
    del facts["runs"]
    facts["vllm"] = import_module("vllm").__version__
    return facts
