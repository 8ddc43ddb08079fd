"""The Gymnasium environment of people who have only a lookup table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.backends.table.fluid_queue import FluidQueue
from llmserve_env.backends.table.lookup import LookupTable, draw_jitter, jitter_stream
from llmserve_env.backends.table.window_records import WindowRecords
from llmserve_env.engine.knobs import KNOB, KNOBS_DTYPE, NAMES, mapping_from_knobs
from llmserve_env.engine.layout import WINDOW_DTYPE
from llmserve_env.engine.metrics import METRICS_DTYPE
from llmserve_env.engine.state import records
from llmserve_env.env.episode import MAX_SEED
from llmserve_env.env.features import encode_features
from llmserve_env.env.kernels import MEMORY_DTYPE, TERMS_DTYPE, hold_knobs, score_windows
from llmserve_env.env.knob_rules import start_memory
from llmserve_env.env.rollouts import scoring_record
from llmserve_env.env.spaces import ActionCodec, ActionEncoding, observation_space
from llmserve_env.errors import ConfigError, EpisodeStateError
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import Task
from llmserve_env.workloads import sample

BACKEND = "table"
"""In every `info`: figures of this backend are never compared with the simulator's."""


class TableBackedEnv(gym.Env[Array, Array]):
    """A task's traffic in front of a queue that is served at the rates of a lookup table.

    ## Action and observation space
    Those of `LLMServeGymEnv`: one agent plays both. `prefill_decode_split` and `priority_routing` change nothing here.

    ## Rewards
    The task's formula over the same terms, filled from the table; `info["reward_terms"]` has them all.

    ## Episode end
    Never terminated; truncated after the task's number of steps.

    docs/tables.md lists what a table cannot show. Results are of another world than the simulator's, marked
    `info["backend"] == "table"`, and no grader takes them.

    Args:
        table: a loaded table, or the path of a parquet file.
        task: whose traffic, fleet size, SLOs, knobs and reward apply.
        action_encoding: `discrete` or `box`.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's contract

    def __init__(
        self, table: LookupTable | str | Path, task: Task | str | int, action_encoding: ActionEncoding = "discrete"
    ) -> None:
        self.task = task if isinstance(task, Task) else load_task(task)
        limit_gb = self.task.deployment.memory_limit_gb
        self.table = table if isinstance(table, LookupTable) else LookupTable.load(table, limit_gb)
        _require_own_task(self.table, self.task)
        _require_cover(self.table, action_encoding)
        self.render_mode = None
        self.actions = ActionCodec(self.task, action_encoding)
        self.action_space = self.actions.space
        self.observation_space = observation_space(self.task)
        self._scoring = scoring_record(self.task, self.task.reward.weights)
        self._memory = records((1,), MEMORY_DTYPE)
        self._terms = records((1,), TERMS_DTYPE)
        self._knobs = records((1,), KNOBS_DTYPE)
        self._seed: int | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Start an episode; without a seed, one is drawn from the environment's own generator."""
        super().reset(seed=seed)
        self._seed = seed if seed is not None else int(self.np_random.integers(0, MAX_SEED + 1))
        requests, deployment = sample(self.task.workload, self._seed), self.task.deployment
        self._queue = FluidQueue(requests, deployment.replicas, deployment.waiting_room)
        self._records = WindowRecords(requests, deployment.replicas, self.task.window_s)
        start_memory(self._memory, self._scoring, 0)
        info = {"seed": self._seed, "task_id": self.task.id, "masked_knobs": self.task.masked_knobs, "backend": BACKEND}
        return self._observe(), info

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Serve one window under these knobs."""
        if self._seed is None:
            raise EpisodeStateError("reset the environment before its first step")
        step = int(self._memory[0]["step"])
        if step >= self.task.steps:
            raise EpisodeStateError(f"the episode ended after {self.task.steps} steps; reset to start another")
        hold_knobs(self._scoring, self._memory, self.actions.decode(np.asarray(action)[None]), self._knobs)
        self._serve(step)
        score_windows(self._scoring, self._memory, self._records.window, self._records.metrics, self._terms)
        return self._observe(), float(self._terms[0]["reward"]), False, step + 1 >= self.task.steps, self._info()

    def window_metrics(self) -> dict[str, Any]:
        """Metrics of the last window by name; those a table cannot know are 0."""
        return {name: self._records.metrics[0][name] for name in METRICS_DTYPE.names or ()}

    def window_counts(self) -> dict[str, Any]:
        """Counters of the last window by name; those a table cannot know are 0."""
        return {name: self._records.window[0][name] for name in WINDOW_DTYPE.names or ()}

    def _serve(self, step: int) -> None:
        knobs, queue = self._knobs[0], self._queue
        tier = int(knobs["quantization_tier"])
        curve = self.table.over_mix(
            float(knobs["kv_budget_fraction"]), int(knobs["speculation_depth"]), tier, self._prompts(step)
        )
        start_ps, end_ps = step * self.task.window_ps, (step + 1) * self.task.window_ps
        jitter = draw_jitter(jitter_stream(int(self._seed or 0), step))
        served = queue.serve(curve, int(knobs["batch_cap"]), start_ps, end_ps, jitter)
        self._records.update(queue, served, tier, end_ps)

    def _prompts(self, step: int) -> Array:
        """Prompts in service or next in line; those of the window's own arrivals when there are none."""
        queue, window_ps = self._queue, self.task.window_ps
        room = int(self._knobs[0]["batch_cap"]) * queue.num_replicas
        held = np.concatenate((queue.running, queue.waiting))[: max(room, len(queue.running))]
        if not len(held):
            span_ps = (step * window_ps, (step + 1) * window_ps)
            held = np.arange(*np.searchsorted(queue.requests.arrival_at_ps, span_ps))
        prompts: Array = queue.requests.prompt_tokens[held]
        return prompts if len(prompts) else np.ones(1)

    def _observe(self) -> Array:
        out = np.empty((1, int(self._scoring["num_features"][0])), np.float32)
        window, metrics = self._records.window, self._records.metrics
        encode_features(self._scoring, self._memory, window, metrics, self.task.steps, out)
        observation: Array = out[0]
        return observation

    def _info(self) -> dict[str, Any]:
        memory = self._memory[0]
        return {
            "reward_terms": dict(zip(TERMS_DTYPE.names or (), self._terms[0].item(), strict=True)),
            "knobs": mapping_from_knobs(memory["current"], self.task.action_knobs),
            "held_knobs": tuple(name for name, held in zip(NAMES, memory["held"], strict=True) if held),
            "cost_so_far_usd": float(memory["cost_so_far_usd"]),
            "is_out_of_memory": bool(self._records.window[0]["ooms"]),
            "backend": BACKEND,
        }


def _require_own_task(table: LookupTable, task: Task) -> None:
    """Refuse a table exported for other outputs, acceptance and memory; a user's own table names no task."""
    if table.metadata.get("task", task.id) != task.id:
        raise ConfigError(
            f"the table was exported for {table.metadata['task']}, not for {task.id}: "
            f"run `llmserve table export --task {task.id}`"
        )


def _require_cover(table: LookupTable, encoding: ActionEncoding) -> None:
    """Refuse a table that some action would leave: nothing is extrapolated and nothing is clamped."""
    for knob, values in (
        (KNOB["batch_cap"], table.grid.batch_size),
        (KNOB["kv_budget_fraction"], table.grid.kv_budget),
    ):
        low, high = (knob.levels[0], knob.levels[-1]) if encoding == "discrete" else (knob.low, knob.high)
        if values[0] > low or values[-1] < high:
            raise ConfigError(
                f"the table's {knob.alias} goes from {values[0]:g} to {values[-1]:g}; "
                f"{encoding} actions need {low:g} to {high:g}: add the missing rows"
            )
