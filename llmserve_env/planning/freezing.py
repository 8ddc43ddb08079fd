"""Freeze the references of a task: the two ends of its score, computed and written beside its file.

The floor is what a random agent reaches, or what `default_knobs` reaches: for the components in `grader.from_baseline`,
and for all of them where requests are counted.
The optimum is, per component, the better of two controls: the constant with the highest reward, and the clairvoyant
planner, which knows the traffic to come and plans around that constant. Both ends are means over reference seeds.
The definition is the same for every task, shipped or not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import mapping_from_knobs
from llmserve_env.errors import ConfigError
from llmserve_env.evaluation.play import play_agent
from llmserve_env.evaluation.report import commit_of
from llmserve_env.evaluation.runner import Runner, Threads
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.graders.plan import FORMULAS
from llmserve_env.graders.references import freeze_command, has_references
from llmserve_env.planning.plan_calibration import plan_section
from llmserve_env.planning.tuning.constants import outcome_of, play_constants
from llmserve_env.planning.tuning.halving import halve
from llmserve_env.tasks.digest import task_digest
from llmserve_env.tasks.files import references_path
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION

MIN_SPAN = 0.02
"""Ends closer than this would turn noise into points."""
NUM_SEEDS = 12
NUM_CEILING_SEEDS = 4
"""Seeds for the clairvoyant planner, which tries hundreds of futures per step."""


def freeze(
    task: Task,
    *,
    num_seeds: int = NUM_SEEDS,
    num_ceiling_seeds: int = NUM_CEILING_SEEDS,
    runner: Runner | None = None,
) -> Path:
    """Compute the references of a task and write them beside its file, with how to reproduce them."""
    if task.file is None:
        raise ConfigError(f"{task.id} was not read from a file, so its references have no place; save it as YAML")
    runner = runner or Threads()
    seeds = SEED_RANGES["references"][:num_seeds]
    baseline = outcome_of(play_agent("default_knobs", task, seeds, runner)).components
    floor = outcome_of(play_agent("random", task, seeds, runner)).components
    floor |= {name: baseline[name] for name in task.grader.from_baseline}
    if task.grader.counts == "requests":
        # Such a score is measured from the defaults on the same traffic.
        floor = baseline
    best = halve(task, lambda outcome: outcome.reward, runner=runner).best.knobs
    constant = play_constants(task, best[None], seeds, runner)[0].components
    planned = play_agent("clairvoyant", task, seeds[:num_ceiling_seeds], runner, constant=best)
    ceiling = outcome_of(planned).components
    optimum = {name: max(constant[name], ceiling[name]) for name in constant}
    _require_room(task, floor, optimum)
    content: dict[str, Any] = {
        "task_id": task.id,
        "task_version": task.version,
        "environment_version": ENVIRONMENT_VERSION,
        "task_digest": task_digest(task),
        "provenance": _provenance(task, seeds, num_ceiling_seeds, best),
        "baseline": _rounded(baseline),
        "floor": _rounded(floor),
        "optimum": _rounded(optimum),
    }
    if task.number in FORMULAS:
        content["plan"] = plan_section(task, runner)
    path = references_path(task.file)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


def ensure_references(task: Task, runner: Runner | None = None) -> Path | None:
    """Freeze the references of a task that has none for its present content; the file written, or None."""
    return None if has_references(task) else freeze(task, runner=runner)


def _provenance(task: Task, seeds: range, num_ceiling_seeds: int, constant: Array) -> dict[str, Any]:
    """How the references were made."""
    ceiling = seeds[:num_ceiling_seeds]
    return {
        "command": f"{freeze_command(task)} --seeds {len(seeds)} --ceiling-seeds {num_ceiling_seeds}",
        "commit": commit_of(Path(__file__).resolve().parent),
        "floor": f"random agent, seeds {seeds.start}..{seeds.stop - 1}; default_knobs for grader.from_baseline",
        "optimum": "per component the better of the best constant by reward (same seeds) and the clairvoyant planner "
        f"around that constant (seeds {ceiling.start}..{ceiling.stop - 1})",
        "constant": mapping_from_knobs(constant),
    }


def _require_room(task: Task, floor: dict[str, float], optimum: dict[str, float]) -> None:
    flat = [name for name in task.grader.weights if optimum[name] - floor[name] < MIN_SPAN]
    if flat:
        spans = ", ".join(f"{name} ({floor[name]:.3f} to {optimum[name]:.3f})" for name in flat)
        raise ConfigError(
            f"{task.id}: control hardly moves {spans}; a graded component needs a span of {MIN_SPAN}: leave it out of "
            "grader.weights, or change the load (llmserve task check shows it)"
        )


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in sorted(values.items())}
