"""What goes into a run of a scheduler, and what is written of it."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tools.recorder.decisions import DecisionLog
from tools.recorder.scheduler_plans import SchedulerRun
from tools.recorder.traffic import Traffic, draw


def draw_run(run: SchedulerRun) -> Traffic:
    """The requests of a run; arrivals are whole microseconds."""
    options = dict(run.traffic)
    kind, seed, duration_s = options.pop("kind"), options.pop("seed"), options.pop("duration_s")
    return draw(kind, seed, duration_s, options)


def prompts_of(traffic: Traffic, seed: int, vocabulary: tuple[int, int]) -> list[list[int]]:
    """Random tokens; the prefix of an id is the same for all that carry it."""
    prompts = []
    for i, count in enumerate(traffic.prompt_tokens):
        shared = int(traffic.prefix_tokens[i]) if traffic.prefix_tokens is not None else 0
        ids = np.random.default_rng((seed, 0, i)).integers(*vocabulary, int(count) - shared).tolist()
        if shared:
            key = (seed, 1, int(traffic.prefix_id[i]))
            ids = np.random.default_rng(key).integers(*vocabulary, shared).tolist() + ids
        prompts.append(ids)
    return prompts


def save(
    run: SchedulerRun, traffic: Traffic, arrival_s: Any, token_times_s: list[Any], log: DecisionLog, folder: Path
) -> None:
    """Write the rows of a run, after checking that every answer is complete."""
    short = [i for i, times in enumerate(token_times_s) if len(times) != traffic.output_tokens[i]]
    if short:
        raise RuntimeError(f"{run.name}: the answers of requests {short[:5]} have another length than was asked for")
    none = np.full(len(traffic), -1)
    log.save(
        folder / f"{run.name}.decisions.npz",
        arrival=arrival_s,
        prompt_len=traffic.prompt_tokens,
        out_len=traffic.output_tokens,
        priority=traffic.priority if traffic.priority is not None else np.zeros(len(traffic), int),
        prefix_id=traffic.prefix_id if traffic.prefix_id is not None else none,
        prefix_len=traffic.prefix_tokens if traffic.prefix_tokens is not None else np.zeros(len(traffic), int),
        token_times=np.concatenate(token_times_s),
    )


def describe(run: SchedulerRun, folder: Path, **facts: Any) -> None:
    """Write what the run was."""
    content = {
        "run": run.name,
        "vllm": import_module("vllm").__version__,
        "engine": dict(run.engine),
        "trace": dict(run.traffic),
        "block_size": run.block_size,
        "max_model_len": run.max_model_len,
        "changes": [list(change) for change in run.changes],
        **facts,
    }
    (folder / f"{run.name}.json").write_text(json.dumps(content), encoding="utf-8")
