"""From the arrays a recording machine writes to the three files the benchmarks read.

`runs.json` says what each run was; `requests.parquet` has a row per request and `steps.parquet` a row per iteration,
times in seconds from the start of the run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TIMES = ("t_sched", "t_sched_end", "t_launch", "t_launch_end", "t_output", "t_output_end")
COMPRESSION = {"compression": "zstd", "compression_level": 19}


def pack(source: Path, target: Path, columns: tuple[str, ...]) -> list[str]:
    """Gather the runs of a folder; their names, in order. `columns` names what a row of steps holds."""
    runs, requests, steps = [], [], []
    for path in sorted(source.glob("*.requests.npz")):
        name = path.name.removesuffix(".requests.npz")
        facts = json.loads((source / f"{name}.json").read_text(encoding="utf-8"))
        runs.append(_described(name, facts))
        requests.append(_requests(name, path))
        steps.append(_steps(name, source / f"{name}.steps.npz", columns, float(facts["origin"])))
    target.mkdir(parents=True, exist_ok=True)
    (target / "runs.json").write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    pq.write_table(pa.concat_tables(requests), target / "requests.parquet", **COMPRESSION)
    pq.write_table(pa.concat_tables(steps), target / "steps.parquet", **COMPRESSION)
    return [run["run"] for run in runs]


def _described(name: str, facts: dict[str, Any]) -> dict[str, Any]:
    engine, run = facts["engine"], facts["run"]
    return {
        "run": name,
        "model": engine["model"],
        "weights": engine["quantization"] or "bf16",
        "vllm": engine["vllm"],
        "gpu": facts.get("gpu", "H200-141GB"),
        "max_num_seqs": engine["max_num_seqs"],
        "max_num_batched_tokens": engine["max_num_batched_tokens"],
        "max_model_len": engine["max_model_len"],
        "gpu_memory_utilization": engine["gpu_memory_utilization"],
        "cuda_graph_max_tokens": facts.get("cuda_graph_max_tokens", min(2 * engine["max_num_seqs"], 512)),
        "num_blocks": facts["num_blocks"],
        "block_size": facts["block_size"],
        "prefix_caching": True,
        "async_scheduling": True,
        "traffic": {key: run[key] for key in ("traffic", "seed", "duration_s", "options")},
        "changes": run["changes"],
    }


def _requests(name: str, path: Path) -> pa.Table:
    with np.load(path, allow_pickle=False) as arrays:
        outputs, times = arrays["out_len"], arrays["token_times"]
        ends = np.cumsum(outputs)
        return pa.table(
            {
                "run": pa.array([name] * len(outputs)).dictionary_encode(),
                "req": pa.array(np.arange(len(outputs), dtype=np.int32)),
                "arrival": arrays["arrival"].round(6),
                "sent": arrays["sent"].round(6),
                "prompt_len": arrays["prompt_len"].astype(np.int32),
                "out_len": outputs.astype(np.int32),
                "first_token": times[ends - outputs].astype(np.float64).round(5),
                "finish": times[ends - 1].astype(np.float64).round(5),
            }
        )


def _steps(name: str, path: Path, columns: tuple[str, ...], origin: float) -> pa.Table:
    with np.load(path, allow_pickle=False) as arrays:
        rows = arrays["rows"]
    data: dict[str, Any] = {
        "run": pa.array([name] * len(rows)).dictionary_encode(),
        "step": pa.array(np.arange(len(rows), dtype=np.int32)),
    }
    for i, column in enumerate(columns):
        values = rows[:, i]
        if column in TIMES:
            data[column] = np.where(values > 0.0, (values - origin).round(6), np.nan)
        elif column == "gpu_ms":
            data[column] = values.round(3).astype(np.float32)
        else:
            data[column] = values.astype(np.int64)
    return pa.table(data)
