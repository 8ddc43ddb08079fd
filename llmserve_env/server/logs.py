"""Logs of episodes on the wire, in both of their forms, and the library's log that grading replays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from llmserve_env.client import DEFAULT_SEED
from llmserve_env.env.episode import ActionLog
from llmserve_env.env.knob_changes import changed
from llmserve_env.errors import ConfigError, InvalidLogError
from llmserve_env.models import EpisodeLog, ServeAction
from llmserve_env.server.grading_schemas import GraderRequest, StepAnswer, StepCause
from llmserve_env.server.tasks import known_task, known_version
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION


def wire_log(log: ActionLog) -> EpisodeLog:
    """The log as a wire type, which /grader accepts unchanged."""
    names = [knob.name for knob in known_version(log.task_id, log.task_version).action_knobs]
    actions = [ServeAction.model_validate(dict(zip(names, action, strict=True))) for action in log.actions]
    return EpisodeLog(
        task_id=log.task_id,
        task_version=log.task_version,
        environment_version=log.environment_version,
        seed=log.seed,
        actions=actions,
        rewards=list(log.rewards),
        mode=log.mode,
    )


def log_of(wire: EpisodeLog) -> ActionLog:
    """The library's log from the wire's, of a task this server knows."""
    task = known_version(wire.task_id, wire.task_version)
    return ActionLog(
        task_id=task.id,
        task_version=wire.task_version,
        environment_version=wire.environment_version,
        seed=wire.seed,
        actions=_whole_actions(task, wire.actions),
        rewards=tuple(wire.rewards),
        mode=wire.mode,
    )


def _whole_actions(task: Task, actions: Iterable[ServeAction]) -> tuple[tuple[float, ...], ...]:
    """Every knob of every step; one that an action leaves out keeps the value last asked for."""
    knobs, found = task.default_knobs, []
    for action in actions:
        knobs = changed(knobs, action.changes())
        found.append(tuple(task.action_from_knobs(knobs).tolist()))
    return tuple(found)


def log_from(asked: GraderRequest, most: int) -> ActionLog:
    """The log that a request brings, in either of its two forms and with `most` steps at most."""
    if asked.session_id or asked.episode_id:
        raise ConfigError("give a session_id or an episode_log, not both")
    given = asked.episode_log
    if isinstance(given, EpisodeLog):
        if len(given.actions) > most:
            raise ConfigError(f"episode_log.actions may have {most} entries at most")
        return log_of(given)
    if len(given or ()) > most:
        raise ConfigError(f"episode_log may have {most} entries at most")
    return log_of_answers(asked.task_id, given or [])


def log_of_answers(task_id: str | int | None, answers: Sequence[StepAnswer]) -> ActionLog:
    """The library's log from what /step answered, in order from the first step on."""
    if not answers:
        if task_id is None:
            raise InvalidLogError("episode_log is an empty list: give the task_id that it is graded as")
        task = known_task(task_id)
        return ActionLog(task.id, task.version, ENVIRONMENT_VERSION, DEFAULT_SEED, ())
    first, causes = answers[0].info, [answer.info for answer in answers]
    task = known_version(first.task_id, first.task_version)
    if task_id is not None and known_task(task_id).id != task.id:
        raise InvalidLogError(f"task_id is {task_id!r}, but episode_log is of {task.id}; give the one it was played on")
    for step, cause in enumerate(causes, start=1):
        if _origin(cause) != _origin(first):
            raise InvalidLogError(
                f"episode_log[{step - 1}] is of another episode than episode_log[0]; grade one episode"
            )
        if cause.timestep != step:
            raise InvalidLogError(
                f"episode_log[{step - 1}].info.timestep is {cause.timestep}; it must be {step}: "
                "give every answer of /step once, in order"
            )
    # A replay pays the task's own rewards, so those of a reset with other weights cannot be compared with it.
    rewards = () if first.reward_weights else tuple(answer.reward for answer in answers)
    return ActionLog(
        task_id=task.id,
        task_version=first.task_version,
        environment_version=first.environment_version,
        seed=first.seed,
        actions=_whole_actions(task, (cause.action for cause in causes)),
        rewards=rewards,
        mode=first.mode,
    )


def _origin(cause: StepCause) -> tuple[Any, ...]:
    return cause.task_id, cause.task_version, cause.environment_version, cause.seed, cause.mode, cause.reward_weights
