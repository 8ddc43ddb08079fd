"""Baselines: grades of the reference agents on one fixed seed, in process or on a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmserve_env.agents.agent import Agent
from llmserve_env.agents.registry import make_agent
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.remote import RemoteEnvironment, play_remote
from llmserve_env.graders import Grade, grade_episode
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION

if TYPE_CHECKING:
    from llmserve_env.agents.llm_settings import LlmSettings

BASELINE_AGENTS = ("default_knobs", "heuristic")
BASELINE_SEED = 42


@dataclass(frozen=True, slots=True)
class BaselineOptions:
    """What to play, and where."""

    tasks: tuple[Task, ...]
    seed: int = BASELINE_SEED
    mode: str = "deterministic"
    env: RemoteEnvironment | None = None
    """A client of a server; without one, agents play in process."""
    llm: LlmSettings | None = None
    """Settings of the `llm` agent, for mode `openai`."""


def baseline_grade(agent: Agent, task: Task, seed: int) -> Grade:
    """The grade of one agent on one seed, played in process; `GET /baseline` and `llmserve baseline` report it."""
    return grade_episode(play(agent, task, [seed])[0])


def baseline_report(options: BaselineOptions) -> dict[str, Any]:
    """Grades of the reference agents, or of a language model, per task."""
    agents = _agents(options)
    report: dict[str, Any] = {
        "mode": options.mode,
        "runtime": "http" if options.env else "in-process",
        "seed": options.seed,
        "environment_version": ENVIRONMENT_VERSION,
        "tasks": {task.id: {agent.name: _graded(options, agent, task) for agent in agents} for task in options.tasks},
    }
    for agent in agents:
        if hasattr(agent, "usage"):
            report["usage"] = agent.usage.report(options.llm)
    return report


def _agents(options: BaselineOptions) -> Sequence[Agent]:
    if options.mode == "openai":
        return [make_agent("llm", settings=options.llm)]
    return [make_agent(name) for name in BASELINE_AGENTS]


def _graded(options: BaselineOptions, agent: Agent, task: Task) -> dict[str, Any]:
    if options.env is None:
        grade = baseline_grade(agent, task, options.seed)
    else:
        grade = play_remote(options.env, agent, task, options.seed)
    return {"score": grade.score, "breakdown": dict(grade.breakdown), "feedback": grade.feedback}
