"""Freeze the references of the core suite: `python -m tools.freeze_references`.

The floor is a random agent, or vLLM's defaults for the components listed in `grader.from_baseline`. The optimum is the
adaptive rule with foresight that `python -m benchmarks.adaptivity --search` found by reward. Both are means over seeds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from typing import Any

import numpy as np

from benchmarks.adaptive_rule import Rule, RuleAgent
from benchmarks.adaptivity_data import found
from llmserve_env.agents.agent import Agent
from llmserve_env.agents.registry import make_agent
from llmserve_env.evaluation.rollout import SEED_RANGES, play
from llmserve_env.graders.components import COMPONENTS, components
from llmserve_env.graders.references import frozen_references, references_file, task_digest
from llmserve_env.tasks.catalog import BENCHMARK, load_task
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION

NUM_SEEDS = 40
MIN_SPAN = 0.02
"""A smaller span between floor and optimum would turn noise into score."""


def component_means(agent: Agent, task: Task, num_seeds: int) -> dict[str, float]:
    """Mean of every component over the reference seeds."""
    measured = [components(episode) for episode in play(agent, task, SEED_RANGES["references"][:num_seeds])]
    return {name: round(float(np.mean([m[name] for m in measured])), 6) for name in COMPONENTS}


def freeze(task: Task, num_seeds: int) -> dict[str, Any]:
    """The entry of one task."""
    floor = component_means(make_agent("random"), task, num_seeds)
    baseline = component_means(make_agent("static"), task, num_seeds)
    rule = Rule.from_mapping(found()["tasks"][task.id]["adaptive"])
    optimum = component_means(RuleAgent(rule, foresight=True), task, num_seeds)
    for name in task.grader.from_baseline:
        floor[name] = baseline[name]
    for name in task.grader.weights:
        if optimum[name] - floor[name] < MIN_SPAN:
            raise SystemExit(
                f"{task.id}: {name} spans {floor[name]:.3f} to {optimum[name]:.3f}; at least {MIN_SPAN} is needed"
            )
    return {
        "task_version": task.version,
        "environment_version": ENVIRONMENT_VERSION,
        "task_digest": task_digest(task),
        "floor": floor,
        "baseline": baseline,
        "optimum": optimum,
    }


def write(num_seeds: int) -> None:
    """Compute every task's references and write them with their provenance."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    seeds = SEED_RANGES["references"][:num_seeds]
    content = {
        "provenance": {
            "command": f"python -m tools.freeze_references --seeds {num_seeds}",
            "commit": commit,
            "seeds": f"{seeds.start}..{seeds.stop - 1}",
            "floor": "random agent; vLLM defaults for components in grader.from_baseline",
            "optimum": "benchmarks/adaptivity_found.json: the adaptive rule with foresight",
        },
        "tasks": {name: freeze(load_task(name), num_seeds) for name in BENCHMARK},
    }
    references_file().write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    frozen_references.cache_clear()


def main() -> None:
    """Write references.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=NUM_SEEDS, help="reference seeds to average over")
    write(parser.parse_args().seeds)


if __name__ == "__main__":
    main()
