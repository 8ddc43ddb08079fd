"""The host beside the card, fitted to the episodes that were recorded before and after the reported ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from benchmarks.gpu_recordings import GpuRun
from benchmarks.recorded_host import log_of
from llmserve_env.engine.tiers import TIER_NUMBERS
from llmserve_env.errors import ConfigError
from llmserve_env.profiles import load_profile
from llmserve_env.profiles.host import Host, load_host
from llmserve_env.profiles.host_fitting import fit_host
from llmserve_env.tasks.task import Task
from tools.card_experiment.calibrating import COLUMNS, FOLDER
from tools.card_experiment.engines import EnginePlan

LAUNCHES = ("full_graph", "piecewise_graph", "no_graph", "per_admission_ms", "output")
"""What the CPU alone decides."""


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
    """The task's own host with the launches of the recorded episodes.

    The GPU is of the same kind, and what a loaded client adds to an answer is not the host's, so these stay.
    """
    runs = load_runs(folder, plan)
    tier = load_profile(str(task.deployment.profile)).costs().tiers[TIER_NUMBERS["FP16"]]
    usual = load_host(str(task.deployment.host))
    found = fit_host([log_of(run, tier) for run in runs], (usual.sampling, usual.decode_attention))
    return usual.model_copy(
        update={
            "name": f"{usual.name}-card",
            "machine": f"the CPU beside the H200 of {folder.name}",
            "provenance": f"python -m tools.card_experiment host; episodes {', '.join(run.name for run in runs)}",
            **{name: getattr(found, name) for name in LAUNCHES},
        }
    )
