"""The Gymnasium environment for users who have only a lookup table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmserve_env.arrays import Array
from llmserve_env.backends.table.backend import TableBackend
from llmserve_env.backends.table.lookup import LookupTable
from llmserve_env.engine.layout import WINDOW_DTYPE
from llmserve_env.engine.metrics import METRICS_DTYPE
from llmserve_env.env.spaces import ActionEncoding
from llmserve_env.errors import ConfigError
from llmserve_env.gym_envs.single import LLMServeGymEnv
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import Task


class TableBackedEnv(LLMServeGymEnv):
    """`LLMServeGymEnv` in front of a queue that is served at the rates of a lookup table.

    Spaces, rewards and the end of an episode are those of `LLMServeGymEnv`, so one agent plays both. docs/tables.md
    lists what a table cannot show. Results cannot be compared with the simulator's: `info["backend"]` is `"table"`,
    and no grader accepts them.

    Args:
        table: a loaded table, or the path of a parquet file.
        task: whose traffic, fleet size, SLOs, knobs and reward apply.
        action_encoding: `discrete` or `box`.
        render_mode: `ansi`, `rgb_array` or None.
    """

    def __init__(
        self,
        table: LookupTable | str | Path,
        task: Task | str | int,
        action_encoding: ActionEncoding = "discrete",
        render_mode: str | None = None,
    ) -> None:
        task = task if isinstance(task, Task) else load_task(task)
        loaded = table if isinstance(table, LookupTable) else LookupTable.load(table, task.deployment.memory_limit_gb)
        backend = TableBackend(task, loaded)
        _require_cover(loaded, task, action_encoding)
        super().__init__(task, action_encoding, render_mode, backend)
        self.table = loaded

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        return observation, info | {"backend": self.episode.mode}

    def _info(self) -> dict[str, Any]:
        is_out_of_memory = bool(self.episode.batch.window[0]["ooms"])
        return super()._info() | {"is_out_of_memory": is_out_of_memory, "backend": self.episode.mode}

    def window_metrics(self) -> dict[str, Any]:
        """Metrics of the last window by name; those a table cannot know are 0."""
        return {name: self.episode.batch.metrics[0][name] for name in METRICS_DTYPE.names or ()}

    def window_counts(self) -> dict[str, Any]:
        """Counters of the last window by name; those a table cannot know are 0."""
        return {name: self.episode.batch.window[0][name] for name in WINDOW_DTYPE.names or ()}


def _require_cover(table: LookupTable, task: Task, encoding: ActionEncoding) -> None:
    """Refuse a table that does not reach as far as the actions do: nothing is extrapolated or clamped."""
    axes = {"batch_cap": table.grid.batch_size, "kv_budget_fraction": table.grid.kv_budget}
    for knob in (knob for knob in task.knob_table if knob.name in axes):
        values = axes[knob.name]
        low, high = (knob.levels[0], knob.levels[-1]) if encoding == "discrete" else (knob.low, knob.high)
        if values[0] > low or values[-1] < high:
            raise ConfigError(
                f"the table's {knob.alias} goes from {values[0]:g} to {values[-1]:g}; "
                f"{encoding} actions need {low:g} to {high:g}: add the missing rows"
            )
