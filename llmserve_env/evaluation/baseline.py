"""Reference agents on one fixed seed: what `GET /baseline` and `server.baseline_inference` report."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from llmserve_env.agents.agent import Agent
from llmserve_env.agents.registry import make_agent
from llmserve_env.evaluation.baseline_options import BASELINE_SEED
from llmserve_env.evaluation.remote import RemoteEnvironment, play_remote
from llmserve_env.evaluation.rollout import play
from llmserve_env.graders import grade_episode
from llmserve_env.tasks.catalog import BENCHMARK, load_task
from llmserve_env.version import ENVIRONMENT_VERSION

BASELINE_AGENTS = ("static", "heuristic")


@dataclass(frozen=True, slots=True)
class BaselineOptions:
    """What to play, and where."""

    tasks: tuple[str, ...]
    seed: int = BASELINE_SEED
    mode: str = "deterministic"
    env: RemoteEnvironment | None = None
    """A client of a server; in process without one."""
    llm: Any = None
    """Settings of the `llm` agent, for mode `openai`."""


def baseline_report(options: BaselineOptions) -> dict[str, Any]:
    """Grades of the reference agents, or of a language model, per task."""
    agents = _agents(options)
    report: dict[str, Any] = {
        "mode": options.mode,
        "runtime": "http" if options.env else "in-process",
        "seed": options.seed,
        "environment_version": ENVIRONMENT_VERSION,
        "tasks": {task: {agent.name: _grade(options, agent, task) for agent in agents} for task in options.tasks},
    }
    for agent in agents:
        if hasattr(agent, "usage"):
            report["usage"] = agent.usage.report(options.llm)
    return report


def _agents(options: BaselineOptions) -> Sequence[Agent]:
    if options.mode == "openai":
        return [make_agent("llm", settings=options.llm)]
    return [make_agent(name) for name in BASELINE_AGENTS]


def _grade(options: BaselineOptions, agent: Agent, task_id: str) -> dict[str, Any]:
    task = load_task(task_id)
    if options.env is not None:
        grade = play_remote(options.env, agent, task, options.seed)
    else:
        grade = grade_episode(play(agent, task, [options.seed])[0])
    return {"score": grade.score, "breakdown": dict(grade.breakdown), "feedback": grade.feedback}


def baseline_from_arguments(args: argparse.Namespace, connect: Callable[[str], RemoteEnvironment]) -> str | None:
    """Play as asked; the report as JSON, or None when it went into a file. `connect` opens a client of a server."""
    llm = None
    if args.mode == "openai":
        from llmserve_env.agents.llm import LlmSettings

        llm = LlmSettings.from_environment(model=args.model, decide_every=args.decide_every)
    tasks = tuple(load_task(name).id for name in args.task or BENCHMARK)
    with ExitStack() as open_clients:
        env = open_clients.enter_context(closing(connect(args.base_url))) if args.runtime == "http" else None
        report = baseline_report(BaselineOptions(tasks, args.seed, args.mode, env, llm))
    text = json.dumps(report, indent=2)
    if args.output is None:
        return text
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(f"{text}\n", encoding="utf-8")
    return None
