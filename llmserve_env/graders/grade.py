"""Grades: a score in [0, 1], its breakdown, and the reasons in words; the same actions always get the same grade."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from llmserve_env.backends.backend import Mode
from llmserve_env.env.episode import ActionLog, Episode, PlayedEpisode, replay
from llmserve_env.errors import InvalidLogError
from llmserve_env.graders.components import MOVED_BY, components
from llmserve_env.graders.feedback import feedback_for
from llmserve_env.graders.plan import PlanGrade, plan_grade
from llmserve_env.graders.references import reference_for
from llmserve_env.graders.same_traffic import default_episode, is_compared, loses_more_for_nothing
from llmserve_env.request_outcomes import RequestFigures, request_figures
from llmserve_env.tasks.catalog import load_version
from llmserve_env.tasks.task import Task

REWARD_TOLERANCE = 1e-9
"""How far rewards of a log may differ from those of its replay: rounding in transport, and no more."""


@dataclass(frozen=True, slots=True)
class Grade:
    """A score and where it comes from."""

    score: float
    breakdown: dict[str, float]
    """Per component: its normalised value under its name, what was measured under `<name>_raw`."""
    feedback: str
    task_id: str
    task_version: int
    seed: int
    num_steps: int
    requests: RequestFigures
    """Percentiles and shares over the episode's requests."""
    mode: Mode = "sim"
    plan: PlanGrade | None = None
    """The score by the plan's formula, for the tasks that the plan has."""


def grade(log: ActionLog, task: Task | None = None) -> Grade:
    """Grade a log by replaying it: its actions decide the score, whatever rewards it claims."""
    task = task or load_version(log.task_id, log.task_version)
    check_log(log, task)
    episode = replay(log, task)
    for step, (claimed, paid) in enumerate(zip(log.rewards, episode.trajectory.terms["reward"], strict=False)):
        if abs(claimed - float(paid)) > REWARD_TOLERANCE:
            raise InvalidLogError(
                f"step {step + 1} claims a reward of {claimed!r}, but its replay pays {float(paid)!r}: "
                "the log was edited, reordered or recorded with other reward weights; play it again"
            )
    return grade_episode(episode)


def grade_episode(episode: Episode | PlayedEpisode) -> Grade:
    """Grade an episode that was played here, without a replay."""
    played = episode.played() if isinstance(episode, Episode) else episode
    task, n, mode = played.task, played.step_count, played.mode
    if mode == "table":
        return _table_grade(played)
    measured, figures = components(played), request_figures(played.requests)
    weights = weights_of(played)
    normalised = _normalised(played, measured, weights)
    score = sum(weight * normalised[name] for name, weight in weights.items()) if n else 0.0
    said = feedback_for(played, figures, normalised, measured)
    if n and is_compared(played) and loses_more_for_nothing(played):
        score = 0.0
        said += (
            " More requests were lost than the defaults lose on this traffic, and the bill is no lower: it scores 0."
        )
    breakdown: dict[str, float] = dict(normalised) if n else dict.fromkeys(normalised, 0.0)
    breakdown |= {f"{name}_raw": value for name, value in measured.items()}
    return Grade(
        score=min(max(score, 0.0), 1.0),
        breakdown=breakdown,
        feedback=said,
        task_id=task.id,
        task_version=task.version,
        seed=played.seed,
        num_steps=n,
        requests=figures,
        mode=mode,
        plan=plan_grade(played),
    )


def _normalised(played: PlayedEpisode, measured: dict[str, float], graded: Iterable[str]) -> dict[str, float]:
    """Graded components, normalised; where requests are counted, zero is what the defaults reach on this traffic."""
    task, reference = played.task, reference_for(played.task)
    zeros = default_episode(task, played.seed).components if is_compared(played) else {}
    return {name: reference.normalised(name, measured[name], zeros.get(name)) for name in graded}


def _table_grade(played: PlayedEpisode) -> Grade:
    """Grade an episode on a lookup table by the plan's formula alone: references hold for the simulator."""
    plan, task = plan_grade(played), played.task
    if plan is None:
        raise InvalidLogError(
            f"an episode on a lookup table is graded by the plan's formula, and {task.id} has none; "
            "play the task in the simulator"
        )
    said = f"Played on a lookup table, so the plan's formula is the score. {plan.feedback}"
    return Grade(
        score=plan.score,
        breakdown=dict(plan.breakdown),
        feedback=said,
        task_id=task.id,
        task_version=task.version,
        seed=played.seed,
        num_steps=played.step_count,
        requests=request_figures(played.requests),
        mode="table",
        plan=plan,
    )


def weights_of(played: PlayedEpisode) -> dict[str, float]:
    """Weights of the components, without those that only a fixed knob can move; the others keep their proportions."""
    given = {str(name): weight for name, weight in played.task.grader.weights.items()}
    kept = {name: weight for name, weight in given.items() if MOVED_BY.get(name) not in played.fixed_knobs}
    if not kept:
        return given
    scale = sum(given.values()) / sum(kept.values())
    return {name: weight * scale for name, weight in kept.items()} if len(kept) < len(given) else given


def check_log(log: ActionLog, task: Task) -> None:
    """Refuse what no episode of the task could have produced."""
    if log.task_id != task.id:
        raise InvalidLogError(
            f"the log is of {log.task_id!r}, not of {task.id!r}; grade it as the task it was played on"
        )
    if len(log.actions) > task.steps:
        raise InvalidLogError(f"the log has {len(log.actions)} actions; {task.id} has {task.steps} steps")
    if log.rewards and len(log.rewards) != len(log.actions):
        raise InvalidLogError(f"the log has {len(log.actions)} actions but {len(log.rewards)} rewards; give one each")
    for step, reward in enumerate(log.rewards):
        if not math.isfinite(reward):
            raise InvalidLogError(f"the reward of step {step + 1} is {reward!r}; rewards are finite numbers")
    for step, action in enumerate(log.actions):
        if len(action) != len(task.action_knobs):
            raise InvalidLogError(
                f"the action of step {step + 1} has {len(action)} knobs; it must have {len(task.action_knobs)}"
            )
        for knob, value in zip(task.action_knobs, action, strict=True):
            whole = knob.kind == "float" or float(value).is_integer()
            if not (math.isfinite(value) and knob.low <= value <= knob.high and whole):
                raise InvalidLogError(f"step {step + 1}: {knob.name} must be {knob.allowed}; got {value!r}")
