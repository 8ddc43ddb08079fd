"""Recorded runs of a vLLM on a GPU, as `tools.recorder` stores them: runs.json, requests.parquet, steps.parquet."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from llmserve_env.arrays import Array

RECORDINGS = Path(__file__).resolve().parent.parent / "recordings" / "h200"


STEP_COLUMNS = (
    "t_sched",
    "running",
    "waiting",
    "reqs",
    "decode_reqs",
    "tokens",
    "prefill_tokens",
    "prefill_work",
    "decode_ctx",
)
TIMED_COLUMNS = ("new_reqs", "t_launch_end", "t_output", "t_output_end", "gpu_ms")
"""Columns of our own recorder; other recordings may lack them."""


@dataclass(frozen=True, slots=True)
class GpuRun:
    """One run: what the engine was started with, what was sent, and when its tokens came, in seconds."""

    name: str
    options: dict[str, Any]
    sent_s: Array
    prompt_tokens: Array
    output_tokens: Array
    first_token_s: Array
    finish_s: Array
    steps: dict[str, Array]
    """Columns of its iterations; those of `TIMED_COLUMNS` where they were recorded."""

    @property
    def weights(self) -> str:
        """Precision of the weights, for example `bf16` or `fp8`; a recorder may add a remark after it."""
        return str(self.options["weights"]).split()[0]

    @property
    def model(self) -> str:
        """The model's name in lower case, as profiles have it."""
        return str(self.options["model"]).lower()

    @property
    def num_blocks(self) -> int:
        """Usable KV blocks: one of the engine's is the null block."""
        return int(self.options["num_blocks"]) - 1

    @property
    def token_budget(self) -> Array:
        """Tokens that each iteration was allowed, as changed during the run."""
        budget = np.full(len(self.steps["t_sched"]), int(self.options["max_num_batched_tokens"]))
        for second, limits in self.changes:
            if "token_budget" in limits:
                budget[self.steps["t_sched"] >= second] = limits["token_budget"]
        return budget

    @property
    def changes(self) -> list[tuple[float, dict[str, int]]]:
        """(second, {batch_cap | token_budget | blocks}): limits that changed while the run went on."""
        return [(float(second), dict(limits)) for second, limits in self.options["changes"]]


def read_gpu_runs(folder: Path) -> list[GpuRun]:
    """All runs of a folder, in the order of runs.json; requests sorted by the time they were sent."""
    options = json.loads((folder / "runs.json").read_text(encoding="utf-8"))
    names = ["run", "sent", "prompt_len", "out_len", "first_token", "finish"]
    table = pq.read_table(folder / "requests.parquet", columns=names)
    runs = np.array(table["run"].to_pylist())
    columns = {name: table[name].to_numpy() for name in names[1:]}
    steps = _read_steps(folder / "steps.parquet")
    found = []
    for one in options:
        rows = np.flatnonzero(runs == one["run"])
        rows = rows[np.argsort(columns["sent"][rows], kind="stable")]
        sent, prompts, outputs, first_token, finish = (columns[name][rows] for name in names[1:])
        name = str(one["run"])
        found.append(GpuRun(name, one, sent, prompts, outputs, first_token, finish, steps.get(name, {})))
    return found


def _read_steps(path: Path) -> dict[str, dict[str, Array]]:
    """Iterations by run, in the order of their scheduling."""
    given = pq.read_schema(path).names
    names = [*STEP_COLUMNS, *(name for name in TIMED_COLUMNS if name in given)]
    table = pq.read_table(path, columns=["run", *names])
    runs = np.array(table["run"].to_pylist())
    columns = {name: table[name].to_numpy() for name in names}
    order = np.argsort(columns["t_sched"], kind="stable")
    found = {}
    for run in np.unique(runs):
        rows = order[runs[order] == run]
        found[str(run)] = {name: column[rows] for name, column in columns.items()}
    return found
