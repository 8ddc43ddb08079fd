"""References for tasks outside the core suite: the two ends of the scale, computed and written beside the task's file.

Floor: a random agent (vLLM's defaults for components in `grader.from_baseline`). Optimum: per component the better of
the constant with the highest reward and the clairvoyant planner, which knows the traffic to come.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llmserve_env.engine.knobs import mapping_from_knobs
from llmserve_env.errors import ConfigError
from llmserve_env.evaluation.parallel import Progress, Runner, Threads
from llmserve_env.evaluation.pieces import play_agent
from llmserve_env.evaluation.rollout import SEED_RANGES
from llmserve_env.graders.references import freeze_command, has_references, references_beside, task_digest
from llmserve_env.planning.tuning.constants import Figures, figures_of, play_constants
from llmserve_env.planning.tuning.halving import halve
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION

MIN_SPAN = 0.02
"""Ends closer than this would turn noise into points."""
NUM_SEEDS = 12
NUM_CEILING_SEEDS = 4
"""Of the clairvoyant planner, which tries hundreds of futures per step."""


def agent_figures(task: Task, agent: str, seeds: Sequence[int], runner: Runner, progress: Progress | None) -> Figures:
    """Means of an agent over seeds, an episode per piece of work."""
    return figures_of(play_agent(task, agent, seeds, runner, progress))


def freeze(
    task: Task,
    *,
    num_seeds: int = NUM_SEEDS,
    num_ceiling_seeds: int = NUM_CEILING_SEEDS,
    runner: Runner | None = None,
    progress: Progress | None = None,
) -> Path:
    """Compute the references of a task and write them, with all it takes to compute them again, beside its file."""
    if task.file is None:
        raise ConfigError(f"{task.id} was not read from a file, so its references have no place; save it as YAML")
    runner, path = runner or Threads(), references_beside(task.file)
    seeds = SEED_RANGES["references"][:num_seeds]
    baseline = agent_figures(task, "static", seeds, runner, progress).components
    floor = agent_figures(task, "random", seeds, runner, progress).components
    floor |= {name: baseline[name] for name in task.grader.from_baseline}
    best = halve(task, lambda figures: figures.reward, runner=runner, progress=progress).best
    constant = play_constants(task, best.knobs[None], seeds, runner, progress)[0].components
    content = _content(task, seeds, num_ceiling_seeds, best.knobs) | {"baseline": _rounded(baseline)}
    kept = path.read_bytes() if path.is_file() else None
    try:
        # The planner plans for the score, so it needs a scale: for as long as it plays, the one the constant gives.
        scale = {name: max(constant[name], floor[name] + MIN_SPAN) for name in constant}
        _write(path, content | {"floor": _rounded(floor), "optimum": _rounded(scale)})
        ceiling = agent_figures(task, "clairvoyant", seeds[:num_ceiling_seeds], runner, progress).components
        optimum = {name: max(constant[name], ceiling[name]) for name in constant}
        _require_room(task, floor, optimum)
        _write(path, content | {"floor": _rounded(floor), "optimum": _rounded(optimum)})
    except BaseException:
        _restore(path, kept)
        raise
    return path


def _content(task: Task, seeds: range, num_ceiling_seeds: int, constant: Any) -> dict[str, Any]:
    """What the references belong to, and where they come from."""
    ceiling = f"{seeds.start}..{seeds.start + num_ceiling_seeds - 1}"
    return {
        "task_id": task.id,
        "task_version": task.version,
        "environment_version": ENVIRONMENT_VERSION,
        "task_digest": task_digest(task),
        "provenance": {
            "command": f"{freeze_command(task)} --seeds {len(seeds)} --ceiling-seeds {num_ceiling_seeds}",
            "floor": f"random agent, seeds {seeds.start}..{seeds.stop - 1}; vLLM defaults for grader.from_baseline",
            "optimum": "per component the better of the best constant by reward (same seeds) and the clairvoyant "
            f"planner (seeds {ceiling}), which plans on the scale from the floor to that constant",
            "constant": mapping_from_knobs(constant, task.action_knobs),
        },
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


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _restore(path: Path, kept: bytes | None) -> None:
    if kept is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(kept)


def ensure_references(task: Task, runner: Runner | None = None, progress: Progress | None = None) -> Path | None:
    """Freeze the references of a task that has none for its present content; the file written, or None."""
    if has_references(task):
        return None
    return freeze(task, runner=runner, progress=progress)
