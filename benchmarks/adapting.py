"""What is adapting worth on the core tasks, and at which prices? `python -m benchmarks.adapting [--json]`.

Policies that adapt against the best constant, on the traffic of the reported seeds. Version 1 of the tasks bills
reserved memory, which no cloud does; version 2 bills GPU time as clouds do. A gain is a difference of scores, which go
from what the default knobs do (0) to the best that is known (1); intervals are over seeds, paired.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from benchmarks.markdown import markdown_table
from llmserve_env.agents.registry import make_agent
from llmserve_env.evaluation.evaluate import result_of
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.seeds import REPORTED_SEEDS
from llmserve_env.evaluation.statistics import summarise
from llmserve_env.tasks.catalog import BENCHMARK, load_task
from llmserve_env.tasks.task import Task

CONSTANT = "tuned"
ADAPTING = ("ppo", "clairvoyant")
PRICES = {1: "invented: reserved memory is billed", 2: "a cloud's: GPU time"}
"""By version of the core tasks."""


def scores(name: str, task: Task) -> list[float]:
    """Of an agent on the reported seeds."""
    return [result_of(name, episode).score for episode in play(make_agent(name), task, REPORTED_SEEDS)]


def rows() -> Iterator[dict[str, Any]]:
    """Gain over the best constant by task, prices and policy."""
    for task_id in BENCHMARK:
        for version, prices in PRICES.items():
            task = load_task(f"{task_id}-v{version}")
            constant = scores(CONSTANT, task)
            gains = {}
            for name in ADAPTING:
                differences = [a - b for a, b in zip(scores(name, task), constant, strict=True)]
                found = summarise(differences)
                gains[name] = {"mean": found.mean, "ci95": list(found.ci95)}
            yield {"task": task.versioned_id, "prices": prices, "constant": summarise(constant).mean, "gains": gains}


def table(found: list[dict[str, Any]]) -> str:
    """Markdown."""
    header = ("task", "prices", f"`{CONSTANT}`", *(f"`{name}` gains" for name in ADAPTING))

    def gain(row: dict[str, Any], name: str) -> str:
        mean, (low, high) = row["gains"][name]["mean"], row["gains"][name]["ci95"]
        return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"

    cells = [
        (f"`{row['task']}`", row["prices"], f"{row['constant']:.3f}", *(gain(row, name) for name in ADAPTING))
        for row in found
    ]
    return markdown_table(header, cells)


def main() -> int:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args()
    found = list(rows())
    print(json.dumps(found, indent=2) if args.json else table(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
