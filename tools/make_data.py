"""Write the data files that the plan names into `llmserve_env/data`: `python -m tools.make_data [--check]`.

- `traces_llama3_8b.parquet`: serving figures of one A100-40GB over the plan's grid of knobs and prompt buckets 0 to 7,
  measured in the simulator at saturation with the chat requests of `bursty_workload`;
- `sharegpt_dist.json`: the prompt lengths of that chat traffic, as a distribution and as shares of the buckets;
- `workload_configs.json`: the workloads of the three core tasks, from their task files.

The two JSON files are small enough to be compared with what the code gives (`--check`).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from llmserve_env.backends.table.export import describe_origin, measure_grid, write_table
from llmserve_env.backends.table.files import DATA_FOLDER, SHIPPED_TABLE
from llmserve_env.backends.table.grid import FULL_GRID, PROMPT_BUCKETS
from llmserve_env.engine.knobs import KNOB
from llmserve_env.tasks.catalog import BENCHMARK, load_task
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import on_profile
from llmserve_env.workloads import describe, sample

COMMAND = "python -m tools.make_data"
CHAT_TASK = "bursty_workload"
CARD_GB = 40.0
SEEDS = range(16)
PERCENTILES = (1, 5, 25, 50, 75, 95, 99)


def table_task() -> Task:
    """The chat requests on a whole card."""
    return on_profile(load_task(CHAT_TASK), memory_limit_gb=CARD_GB)


def write_traces(path: Path = SHIPPED_TABLE) -> None:
    """The lookup table; it names no task, because any task may be played on it."""
    task = table_task()
    columns = measure_grid(task, FULL_GRID)
    origin = {**describe_origin(task, columns, COMMAND), "requests": task.id}
    del origin["task"]
    columns["prompt_len_bucket"] = np.searchsorted(PROMPT_BUCKETS, columns["prompt_len_bucket"]).astype(float)
    write_table(path, columns, origin)


def sharegpt_dist() -> dict[str, Any]:
    """Prompt lengths of the chat traffic."""
    workload = load_task(CHAT_TASK).workload
    spec = workload.sources[0].kinds[0].prompt_tokens.model_dump()
    prompts = np.concatenate([sample(workload, seed).prompt_tokens for seed in SEEDS])
    buckets = np.minimum(np.searchsorted(PROMPT_BUCKETS, prompts), len(PROMPT_BUCKETS) - 1)
    shares = np.bincount(buckets, minlength=len(PROMPT_BUCKETS)) / len(prompts)
    return {
        "command": COMMAND,
        "task": CHAT_TASK,
        "prompt_tokens": spec,
        "requests": len(prompts),
        "mean_tokens": round(float(prompts.mean()), 2),
        "percentiles": {str(p): int(np.percentile(prompts, p)) for p in PERCENTILES},
        "bucket_upper_tokens": list(PROMPT_BUCKETS),
        "bucket_shares": [round(float(share), 6) for share in shares],
    }


def workload_config(task: Task) -> dict[str, Any]:
    """One task's traffic, promises and limits."""
    load = describe(task.workload)
    return {
        "task_id": task.id,
        "number": task.number,
        "version": task.version,
        "name": task.name,
        "difficulty": task.difficulty,
        "episode_length": task.steps,
        "mean_rps": round(load.mean_rps, 3),
        "peak_rps": round(load.peak_rps, 3),
        "priority_mix": {name: round(share, 4) for name, share in load.class_shares.items()},
        "memory_limit_gb": task.deployment.memory_limit_gb,
        "active_actions": [KNOB[name].alias or name for name in task.knobs.active],
        "reward_weights": task.reward.weights.model_dump(),
        "workload": task.workload.model_dump(mode="json", by_alias=True),
    }


def json_files() -> dict[Path, str]:
    """Path and text of the small files."""
    configs = {"command": COMMAND, "tasks": [workload_config(load_task(name)) for name in BENCHMARK]}
    contents = {"sharegpt_dist.json": sharegpt_dist(), "workload_configs.json": configs}
    return {DATA_FOLDER / name: json.dumps(content, indent=2) + "\n" for name, content in contents.items()}


def main() -> int:
    """Write the files, or with --check name those that the code no longer gives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a JSON file is out of date")
    arguments = parser.parse_args()
    texts = json_files()
    stale = [path.name for path, text in texts.items() if not path.is_file() or path.read_text("utf-8") != text]
    if arguments.check:
        print(f"out of date: {', '.join(stale) or 'none'}", file=sys.stderr)
        return 1 if stale else 0
    DATA_FOLDER.mkdir(exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    write_traces()
    return 0


if __name__ == "__main__":
    sys.exit(main())
