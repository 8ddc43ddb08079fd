"""The line protocol of `inference.py`: one formatter for [START], [STEP] and [END]."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llmserve_env.agents.agent import Agent, BranchingAgent, view_of
from llmserve_env.engine.knobs import mapping_from_knobs
from llmserve_env.env.episode import Episode
from llmserve_env.errors import LLMServeError
from llmserve_env.graders import grade_episode
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.task import Task

ENVIRONMENT_NAME = "llmserve_env"


def start_line(task_id: str, model: str) -> str:
    """Once per episode, before its first step."""
    return f"[START] task={task_id} env={ENVIRONMENT_NAME} model={model}"


def step_line(step: int, action: Mapping[str, Any], reward: float, done: bool, error: str | None) -> str:
    """Once per step; the action is compact JSON and an error is one line."""
    chosen = json.dumps(action, separators=(",", ":"))
    said = "null" if error is None else " ".join(error.split())
    return f"[STEP] step={step} action={chosen} reward={reward:.2f} done={str(done).lower()} error={said}"


def end_line(success: bool, rewards: list[float], score: float) -> str:
    """Once per episode, whatever happened."""
    paid = ",".join(f"{reward:.2f}" for reward in rewards)
    return f"[END] success={str(success).lower()} steps={len(rewards)} score={score:.3f} rewards={paid}"


def lines_of_none(task_ids: Sequence[str], model: str) -> Iterator[str]:
    """The lines for episodes that could not be started, because the agent could not be made."""
    for task_id in task_ids:
        yield start_line(task_id, model)
        yield end_line(False, [], 0.0)


def play_lines(agent: Agent, task: Task, seed: int, model: str, deadline_s: float | None = None) -> Iterator[str]:
    """Play an episode and yield its lines; an agent that fails ends the episode with a score of 0.

    `deadline_s` is a `time.monotonic` instant after which no step is begun.
    """
    yield start_line(task.id, model)
    episode = Episode(task)
    episode.reset(seed)
    rewards: list[float] = []
    try:
        agent.reset(task, [stream(seed, POLICY_STREAM)])
        if isinstance(agent, BranchingAgent):
            agent.attach(episode.batch)
        while not episode.is_done and (deadline_s is None or time.monotonic() < deadline_s):
            knobs = agent.act(view_of(episode.batch, episode.step_count))[0]
            episode.step(knobs)
            rewards.append(episode.reward)
            action = mapping_from_knobs(knobs, task.action_knobs)
            yield step_line(episode.step_count, action, episode.reward, episode.is_done, _last_error(agent))
    except LLMServeError as error:
        action = mapping_from_knobs(episode.batch.knobs[0], task.action_knobs)
        yield step_line(episode.step_count + 1, action, 0.0, False, str(error))
    except (Exception, KeyboardInterrupt):
        # Readers of the log wait for an [END] line, so it comes before the exception reaches the caller.
        yield end_line(False, rewards, 0.0)
        raise
    score = grade_episode(episode).score if episode.is_done else 0.0
    yield end_line(episode.is_done, rewards, score)


def _last_error(agent: Agent) -> str | None:
    """What was wrong with the last answer of an agent that records its usage."""
    usage = getattr(agent, "usage", None)
    return None if usage is None else usage.last_error
