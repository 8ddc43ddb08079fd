"""The constants of the plan's scores, measured by playing: what the defaults serve and cost, and the most served.

The best control is the constant with the most tokens per second, over all levels of the batch cap and, where the tier
is active, of the tier; the other knobs stay at their defaults.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import KNOB
from llmserve_env.errors import ConfigError
from llmserve_env.evaluation.play import play_agent
from llmserve_env.evaluation.runner import Runner, Threads
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.graders.plan import FORMULAS, cost_usd, mean_tps, plan_grade_with
from llmserve_env.graders.references import references_of
from llmserve_env.planning.tuning.constants import play_constants
from llmserve_env.tasks.files import references_path
from llmserve_env.tasks.task import Task

NUM_SEEDS = 12
WIDTH = 3.0
"""Standard deviations on either side of the mean that `default_range` covers."""


def plan_section(task: Task, runner: Runner | None = None) -> dict[str, Any]:
    """The `plan` section of a task's references."""
    runner = runner or Threads()
    seeds = SEED_RANGES["references"][:NUM_SEEDS]
    defaults = play_agent("default_knobs", task, seeds, runner)
    found = play_constants(task, _candidates(task), seeds, runner)
    constants = {
        "baseline_tps": float(np.mean([mean_tps(episode) for episode in defaults])),
        "optimal_tps": max(outcome.throughput_tps for outcome in found),
        "baseline_cost_usd": float(np.mean([cost_usd(episode) for episode in defaults])),
    }
    scores = [plan_grade_with(episode, constants).score for episode in defaults]
    mean, spread = float(np.mean(scores)), WIDTH * float(np.std(scores))
    return {
        **{name: round(value, 6) for name, value in constants.items()},
        "default_range": [round(max(mean - spread, 0.0), 3), round(min(mean + spread, 1.0), 3)],
        "seeds": f"{seeds.start}..{seeds.stop - 1}",
    }


def calibrate(task: Task, runner: Runner | None = None) -> Path:
    """Measure the plan's constants of a core task and write them into its references."""
    if task.file is None or task.number not in FORMULAS:
        raise ConfigError(f"the plan has a formula for the three core tasks only; got {task.id}")
    content = {**references_of(task), "plan": plan_section(task, runner)}
    path = references_path(task.file)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


def _candidates(task: Task) -> Array:
    levels = {name: KNOB[name].levels for name in ("batch_cap", "quantization_tier") if name in task.knobs.active}
    rows = []
    for values in product(*levels.values()):
        knobs = task.default_knobs
        for name, value in zip(levels, values, strict=True):
            knobs[KNOB[name].column] = value
        rows.append(knobs)
    return np.array(rows)
