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


STEP_COLUMNS = ("reqs", "new_reqs", "tokens", "prefill_tokens", "prefill_work", "decode_ctx", "gpu_ms")
TIME_COLUMNS = ("t_sched", "t_launch_end", "t_output", "t_output_end")


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
    """Columns of its iterations; empty where the recorder did not time launches."""

    @property
    def weights(self) -> str:
        """Precision of the weights, for example `bf16` or `fp8`."""
        return str(self.options["weights"])

    @property
    def model(self) -> str:
        """The model's name in lower case, as profiles have it."""
        return str(self.options["model"]).lower()

    @property
    def num_blocks(self) -> int:
        """Usable KV blocks: one of the engine's is the null block."""
        return int(self.options["num_blocks"]) - 1

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
    """Iterations by run; nothing where the file does not say when they were launched."""
    names = [*STEP_COLUMNS, *TIME_COLUMNS]
    if not set(names) <= set(pq.read_schema(path).names):
        return {}
    table = pq.read_table(path, columns=["run", *names])
    runs = np.array(table["run"].to_pylist())
    columns = {name: table[name].to_numpy() for name in names}
    # The last iterations of a run may end after its rows were written.
    is_whole = np.all([np.isfinite(columns[name]) for name in TIME_COLUMNS], axis=0)
    return {
        str(run): {name: column[(runs == run) & is_whole] for name, column in columns.items()}
        for run in np.unique(runs)
    }
