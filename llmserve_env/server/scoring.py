"""Grades, and agents that play on the server."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from llmserve_env.agents.agent import Agent, view_of
from llmserve_env.agents.planner import PlannerAgent
from llmserve_env.agents.policy import SHIPPED_WEIGHTS, weights_folder
from llmserve_env.agents.registry import AGENTS, current_name, make_agent
from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import mapping_from_knobs
from llmserve_env.env.episode import ActionLog, Episode
from llmserve_env.env.observation import observe
from llmserve_env.errors import ConfigError, VersionMismatchError, WeightsNotFoundError
from llmserve_env.evaluation.baseline import baseline_grade
from llmserve_env.graders import Grade, grade, grade_episode
from llmserve_env.models import GradeReport, PlanReport
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.server.clients import Client
from llmserve_env.server.schemas import AgentInfo
from llmserve_env.server.sessions import Session, Sessions
from llmserve_env.server.tasks import known_task
from llmserve_env.tasks.task import Task

log = logging.getLogger("llmserve.server")
ELSEWHERE = {
    "llm": "It takes a second or more for each step and needs a key of your own: run `python inference.py`.",
}
"""Agents that do not play on a server that anybody may use, and where to play them."""
Borrow = Callable[[int], object]
"""Makes room for this many bytes until the agent has played."""
PLAYABLE = tuple(name for name in AGENTS if name not in ELSEWHERE)
"""Agents quick enough to play while somebody watches."""


def report(given: Grade) -> GradeReport:
    """A grade as a wire type."""
    return GradeReport(
        task_id=given.task_id,
        seed=given.seed,
        steps=given.num_steps,
        score=given.score,
        breakdown=dict(given.breakdown),
        feedback=given.feedback,
        requests=given.requests.as_dict(),
        mode=given.mode,
        plan=None if given.plan is None else PlanReport.model_validate(asdict(given.plan)),
    )


def grade_log(log: ActionLog) -> GradeReport:
    """The grade of an explicit log, by replay."""
    return report(grade(log))


def grade_of(episode: Episode) -> GradeReport:
    """The grade of an episode that this server has played or replayed itself."""
    return report(grade_episode(episode))


def grade_session(session: Session) -> GradeReport:
    """The grade of a session."""
    with session.held.use() as episode:
        return grade_of(episode)


def score_of(episode: Episode) -> float:
    """The score of the episode's grade."""
    return grade_of(episode).score


@lru_cache(maxsize=256)
def baseline(task_id: str, agent_name: str, seed: int) -> GradeReport:
    """An agent's grade on one seed; the same every time, so it is computed once."""
    return report(baseline_grade(make_agent(agent_name), known_task(task_id), seed))


def agent_for(name: str, past: Episode, borrow: Borrow = lambda _num_bytes: None) -> Agent:
    """An agent in the state it would have if it had watched the episode from the start, rebuilt by replay."""
    name = current_name(name)
    if name not in PLAYABLE:
        raise ConfigError(f"there is no agent {name[:50]!r} to play here; known: {', '.join(PLAYABLE)}")
    watched = Episode(past.task)
    if past.mode != "sim" and past.step_count:
        raise ConfigError(
            f"an agent can join an episode in {past.mode} mode at its start only: what it has missed cannot be replayed"
        )
    agent = _prepared(name, past.task, int(past.seed or 0))
    if past.step_count:
        watched.reset(int(past.seed or 0))
        _attach(agent, watched, borrow)
        for step in range(past.step_count):
            agent.act(view_of(watched.batch, step))
            watched.step(past.trajectory.requested[step])
    _attach(agent, past, borrow)
    return agent


def _prepared(name: str, task: Task, seed: int) -> Agent:
    """An agent at the start of an episode. Errors about files that it lacks do not tell clients where they would be."""
    try:
        agent = make_agent(name)
        agent.reset(task, [stream(seed, POLICY_STREAM)])
    except (WeightsNotFoundError, VersionMismatchError) as error:
        raise type(error)(_without_folders(str(error))) from error
    except ConfigError as error:
        log.error("%s cannot play %s: %s", name, task.id, error)
        raise WeightsNotFoundError(
            f"{name} cannot play {task.id} here: its files contain a mistake; the server's log names it"
        ) from error
    return agent


def _without_folders(text: str) -> str:
    for folder in (weights_folder(), SHIPPED_WEIGHTS):
        text = text.replace(f"{folder}{os.sep}", "")
    return text


def _attach(agent: Agent, episode: Episode, borrow: Borrow) -> None:
    """Attach an agent that plans on copies of the simulator to this one, and borrow the memory for the copies."""
    if not isinstance(agent, PlannerAgent):
        return
    if episode.mode == "real":
        raise ConfigError(f"{agent.name} plans on copies of the simulator; a real engine cannot be copied")
    if not agent.is_attached:
        borrow(agent.num_copies(episode.task) * episode.num_bytes)
    agent.attach(episode.batch)


def _detach(session: Session) -> None:
    for agent in session.agents.values():
        if isinstance(agent, PlannerAgent):
            agent.detach()


def play_steps(
    sessions: Sessions, session: Session, agent_name: str, steps: int, client: Client, until_s: float
) -> list[dict[str, Any]]:
    """Let an agent take some steps of a session, each journaled like a client's; it stops at `until_s`."""
    played: list[dict[str, Any]] = []
    with ExitStack() as borrowed:

        def borrow(num_bytes: int) -> None:
            borrowed.enter_context(sessions.memory.lend(num_bytes))

        while len(played) < steps and time.monotonic() < until_s:
            with session.held.use() as episode:
                if episode.is_done:
                    break
                # Afterwards, a session keeps what an agent knows, and none of its copies.
                borrowed.callback(_detach, session)
                knobs, done = _decision(session, episode, agent_name, borrow)
                task = episode.task
            session = sessions.step(session, tuple(enumerate(knobs.tolist())), done + 1, client)
            session.agent_steps[agent_name] = done + 1
            with session.held.use() as episode:
                seen = observe(episode)
            reward, is_done = seen.pop("reward"), seen.pop("done")
            action = mapping_from_knobs(knobs, task.action_knobs)
            played.append({"action": action, "observation": seen, "reward": reward, "done": is_done})
    return played


def _decision(session: Session, episode: Episode, agent_name: str, borrow: Borrow) -> tuple[Array, int]:
    """The agent's next action, and the number of steps before it."""
    done, agent = episode.step_count, session.agents.get(agent_name)
    if agent is None or session.agent_steps.get(agent_name) != done:
        agent = session.agents[agent_name] = agent_for(agent_name, episode, borrow)
    # The episode may have been packed and unpacked since the agent saw it last.
    _attach(agent, episode, borrow)
    knobs: Array = agent.act(view_of(episode.batch, done))[0]
    return knobs, done


def available_agents(task_id: str) -> list[AgentInfo]:
    """All agents, with what they do and whether they can play this task here."""
    task = known_task(task_id)

    def reason(name: str) -> str:
        if name in ELSEWHERE:
            return ELSEWHERE[name]
        try:
            _prepared(name, task, seed=0)
        except (WeightsNotFoundError, VersionMismatchError) as error:
            return str(error)
        return ""

    return [
        AgentInfo(name=name, title=entry.title, does=entry.does, sees=entry.sees, is_available=not why, reason=why)
        for name, entry in AGENTS.items()
        for why in [reason(name)]
    ]
