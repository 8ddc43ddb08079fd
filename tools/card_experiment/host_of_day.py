"""The host beside the card, fitted to the episodes that were recorded before and after the reported ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from benchmarks.gpu_recordings import GpuRun
from benchmarks.recorded_host import host_of
from llmserve_env.engine.tiers import TIER_NUMBERS
from llmserve_env.errors import ConfigError
from llmserve_env.profiles import load_profile
from llmserve_env.profiles.host import Host, load_host
from llmserve_env.tasks.task import Task
from tools.card_experiment.calibrating import COLUMNS, FOLDER
from tools.card_experiment.engines import EnginePlan


def load_runs(folder: Path, plan: EnginePlan) -> list[GpuRun]:
    """The recorded episodes of a folder."""
    found = []
    for path in sorted((folder / FOLDER).glob("*.npz")):
        facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        with np.load(path, allow_pickle=False) as arrays:
            columns = {name: arrays[name] for name in arrays.files}
        budgets = columns.pop("token_budgets")
        order = np.argsort(columns["t_sched"], kind="stable")
        steps = {name: columns.pop(name)[order] for name in COLUMNS}
        steps["reqs"] = steps["decode_reqs"] + steps.pop("chunks")
        steps["tokens"] = steps["decode_reqs"] + steps["prefill_tokens"]
        options = {
            "model": "llama-3-8b",
            "weights": "bf16",
            "max_num_batched_tokens": plan.defaults["token_budget"],
            "cuda_graph_max_tokens": facts["graph_max_tokens"],
            "changes": [(i * facts["window_s"], {"token_budget": int(b)}) for i, b in enumerate(budgets)],
        }
        found.append(GpuRun(path.stem, options, **columns, steps=steps))
    if not found:
        raise ConfigError(f"{folder / FOLDER} holds no recorded episode; `tools.card_experiment play` makes them")
    return found


def fit(folder: Path, plan: EnginePlan, task: Task) -> Host:
    """The host of the recorded episodes; what they do not tell is that of the task's own host."""
    runs = load_runs(folder, plan)
    tier = load_profile(str(task.deployment.profile)).costs().tiers[TIER_NUMBERS["FP16"]]
    usual = load_host(str(task.deployment.host))
    found = host_of(runs, tier, f"{usual.name}-card")
    return found.model_copy(
        update={
            "machine": "the CPU beside the H200 of recordings/h200_card",
            "provenance": f"python -m tools.card_experiment host; episodes {', '.join(run.name for run in runs)}",
            "products": usual.products,
        }
    )
