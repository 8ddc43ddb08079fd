"""Grades, and agents that play on the server."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from llmserve_env.agents.agent import Agent, view_of
from llmserve_env.agents.registry import make_agent
from llmserve_env.engine.knobs import mapping_from_knobs
from llmserve_env.env.episode import ActionLog, Episode
from llmserve_env.env.observation import observe
from llmserve_env.errors import ConfigError, WeightsNotFoundError
from llmserve_env.evaluation.baseline import baseline_grade
from llmserve_env.graders import Grade, grade, grade_episode
from llmserve_env.models import EpisodeLog, GradeReport
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.server.sessions import Session, Sessions
from llmserve_env.server.tasks import known_task

PLAYABLE = ("static", "heuristic", "tuned", "random", "ppo")
"""Agents quick enough to play while somebody watches."""


def log_of(wire: EpisodeLog) -> ActionLog:
    """The library's log from the wire's, of a task this server knows."""
    task = known_task(wire.task_id)
    return ActionLog(
        task_id=task.id,
        task_version=wire.task_version,
        environment_version=wire.environment_version,
        seed=wire.seed,
        actions=tuple(tuple(task.action_from_knobs(np.array(one.numbers())).tolist()) for one in wire.actions),
        rewards=tuple(wire.rewards),
        mode=wire.mode,
    )


def report(given: Grade) -> GradeReport:
    """A grade in the form of the wire."""
    return GradeReport(
        task_id=given.task_id,
        seed=given.seed,
        steps=given.num_steps,
        score=given.score,
        breakdown=dict(given.breakdown),
        feedback=given.feedback,
        mode=given.mode,
    )


def grade_log(log: ActionLog) -> GradeReport:
    """The grade of an explicit log, by replay."""
    return report(grade(log))


def grade_of(episode: Episode) -> GradeReport:
    """The grade of an episode that this server has played or replayed itself."""
    return report(grade_episode(episode))


def score_of(episode: Episode) -> float:
    """The score alone."""
    return grade_of(episode).score


@lru_cache(maxsize=256)
def baseline(task_id: str, agent_name: str, seed: int) -> GradeReport:
    """An agent's grade on one seed; the same every time, so it is computed once."""
    return report(baseline_grade(make_agent(agent_name), known_task(task_id), seed))


def agent_for(name: str, session: Session) -> Agent:
    """An agent in the state it would have if it had watched the session from the start, rebuilt by replay."""
    if name not in PLAYABLE:
        raise ConfigError(f"there is no agent {name[:50]!r} to play here; known: {', '.join(PLAYABLE)}")
    past, watched = session.episode, Episode(session.episode.task)
    if past.mode == "real" and past.step_count:
        raise ConfigError("an agent can join a real episode at its start only: what it has missed cannot be replayed")
    agent = make_agent(name)
    agent.reset(past.task, [stream(int(past.seed or 0), POLICY_STREAM)])
    if past.step_count:
        watched.reset(int(past.seed or 0))
        for step in range(past.step_count):
            agent.act(view_of(watched.batch, step))
            watched.step(past.trajectory.requested[step])
    return agent


def play_steps(sessions: Sessions, session: Session, agent_name: str, steps: int) -> list[dict[str, Any]]:
    """Let an agent take some steps of a session, each journaled like a client's."""
    agent = session.agents.get(agent_name)
    if agent is None or session.agent_steps.get(agent_name) != session.episode.step_count:
        agent = session.agents[agent_name] = agent_for(agent_name, session)
    played = []
    for _ in range(steps):
        if session.episode.is_done:
            break
        knobs = agent.act(view_of(session.episode.batch, session.episode.step_count))[0]
        session = sessions.step(session, tuple(float(v) for v in knobs), session.episode.step_count + 1)
        session.agent_steps[agent_name] = session.episode.step_count
        seen = observe(session.episode)
        reward, done = seen.pop("reward"), seen.pop("done")
        played.append(
            {
                "action": mapping_from_knobs(knobs, session.episode.task.action_knobs),
                "observation": seen,
                "reward": reward,
                "done": done,
            }
        )
    return played


def available_agents(task_id: str) -> list[dict[str, Any]]:
    """Agents that can play this task here, and why others cannot."""
    task, found = known_task(task_id), []
    for name in PLAYABLE:
        try:
            make_agent(name).reset(task, [stream(0, POLICY_STREAM)])
        except WeightsNotFoundError as error:
            found.append({"name": name, "is_available": False, "reason": str(error)})
        else:
            found.append({"name": name, "is_available": True, "reason": ""})
    return found
