"""References for tasks outside the core suite: the two ends of the scale, computed and written beside the task's file.

Floor: a random agent (vLLM's defaults for components in `grader.from_baseline`). Optimum: per component the better of
the constant with the highest reward and the clairvoyant planner, which knows the traffic to come.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmserve_env.agents.registry import make_agent
from llmserve_env.env.knob_values import mapping_from_knobs
from llmserve_env.errors import ConfigError
from llmserve_env.evaluation.parallel import Progress, Runner, Threads
from llmserve_env.evaluation.rollout import SEED_RANGES, play
from llmserve_env.graders.references import has_references, references_beside, task_digest
from llmserve_env.tasks.task import Task
from llmserve_env.tuning.constants import Figures, figures_of, play_constants
from llmserve_env.tuning.halving import halve
from llmserve_env.version import ENVIRONMENT_VERSION

MIN_SPAN = 0.02
"""Ends closer than this would turn noise into points."""
NUM_SEEDS = 12
NUM_CEILING_SEEDS = 4
"""Of the clairvoyant planner, which tries hundreds of futures per step."""


@dataclass(frozen=True)
class _Piece:
    task: Task
    agent: str
    seed: int


def _play_piece(piece: _Piece) -> Any:
    return play(make_agent(piece.agent), piece.task, [piece.seed])[0]


def agent_figures(task: Task, agent: str, seeds: Sequence[int], runner: Runner, progress: Progress | None) -> Figures:
    """Means of an agent over seeds, an episode per piece of work."""
    return figures_of(runner.map(_play_piece, [_Piece(task, agent, seed) for seed in seeds], progress))


def freeze(
    task: Task,
    *,
    num_seeds: int = NUM_SEEDS,
    num_ceiling_seeds: int = NUM_CEILING_SEEDS,
    runner: Runner | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The references of a task, with everything it takes to compute them again."""
    runner = runner or Threads()
    seeds = SEED_RANGES["references"][:num_seeds]
    floor = agent_figures(task, "random", seeds, runner, progress).components
    baseline = agent_figures(task, "static", seeds, runner, progress).components
    best = halve(task, lambda figures: figures.reward, runner=runner, progress=progress).best
    constant = play_constants(task, best.knobs[None], seeds, runner, progress)[0].components
    ceiling = agent_figures(task, "clairvoyant", seeds[:num_ceiling_seeds], runner, progress).components
    optimum = {name: max(constant[name], ceiling[name]) for name in constant}
    floor |= {name: baseline[name] for name in task.grader.from_baseline}
    _require_room(task, floor, optimum)
    return {
        "task_id": task.id,
        "task_version": task.version,
        "environment_version": ENVIRONMENT_VERSION,
        "task_digest": task_digest(task),
        "provenance": {
            "command": f"llmserve task freeze {task.file.name if task.file else task.id} --seeds {num_seeds} "
            f"--ceiling-seeds {num_ceiling_seeds}",
            "floor": f"random agent, seeds {seeds.start}..{seeds.stop - 1}; vLLM defaults for grader.from_baseline",
            "optimum": f"per component the better of the best constant by reward (same seeds) and the clairvoyant "
            f"planner (seeds {seeds.start}..{seeds.start + num_ceiling_seeds - 1})",
            "constant": mapping_from_knobs(best.knobs),
        },
        "floor": _rounded(floor),
        "baseline": _rounded(baseline),
        "optimum": _rounded(optimum),
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


def write_references(task: Task, content: dict[str, Any]) -> Path:
    """Write references where graders look for them."""
    if task.file is None:
        raise ConfigError(f"{task.id} was not read from a file, so its references have no place; save it as YAML")
    path = references_beside(task.file)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


def ensure_references(task: Task, runner: Runner | None = None, progress: Progress | None = None) -> Path | None:
    """Freeze the references of a task that has none for its present content; the file written, or None."""
    if has_references(task):
        return None
    return write_references(task, freeze(task, runner=runner, progress=progress))
