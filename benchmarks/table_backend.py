"""Compare a lookup table with the simulator it was exported from: `python -m benchmarks.table_backend`.

Every task's table is exported, and constant actions play one seed on both; the figures are rewards per step.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.markdown import markdown_table
from llmserve_env.backends.table.export import export_table
from llmserve_env.backends.table.grid import FULL_GRID
from llmserve_env.gym_envs.single import LLMServeGymEnv
from llmserve_env.gym_envs.table_backed import TableBackedEnv
from llmserve_env.tasks.catalog import BENCHMARK, load_task

SEED = 42
CONSTANTS: dict[str, list[int]] = {
    "batch 32, KV 1.0": [2, 8, 0, 0, 0, 0],
    "batch 96, KV 0.5": [4, 4, 0, 0, 0, 0],
    "batch 96, KV 0.5, depth 1": [4, 4, 1, 0, 0, 0],
    "batch 96, KV 0.5, INT8": [4, 4, 0, 1, 0, 0],
    "batch 512, KV 0.1": [8, 0, 0, 0, 0, 0],
    "batch 512, KV 1.0": [8, 8, 0, 0, 0, 0],
}
"""Indices into the levels of the discrete action."""


def mean_reward(env: Any, action: list[int]) -> float:
    """Mean reward of a whole episode under one action."""
    env.reset(seed=SEED)
    rewards, is_over = [], False
    while not is_over:
        _, reward, _, is_over, _ = env.step(np.array(action))
        rewards.append(float(reward))
    return float(np.mean(rewards))


def compared() -> str:
    """The comparison table and the time of the exports."""
    both: dict[str, list[str]] = {name: [] for name in CONSTANTS}
    took = []
    for task_id in BENCHMARK:
        task = load_task(task_id)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table.parquet"
            started_s = time.process_time()
            export_table(task, FULL_GRID, path)
            took.append(f"{task_id} {time.process_time() - started_s:.0f} s, {path.stat().st_size / 1e3:.0f} kB")
            simulator, backed = LLMServeGymEnv(task), TableBackedEnv(path, task)
            for name, action in CONSTANTS.items():
                both[name].append(f"{mean_reward(simulator, action):+.2f} / {mean_reward(backed, action):+.2f}")
    header = ["constant action: simulator / table", *(f"`{task_id}`" for task_id in BENCHMARK)]
    shown = markdown_table(header, [[name, *cells] for name, cells in both.items()])
    how = f"Mean reward per step, seed {SEED}. Exporting {len(FULL_GRID):,} points took: {'; '.join(took)} (CPU time)."
    return f"{shown}\n\n{how}"


if __name__ == "__main__":
    print(compared())
