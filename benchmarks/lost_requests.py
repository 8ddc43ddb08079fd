"""Does losing requests ever pay? Searches for policies that do: `python -m benchmarks.lost_requests`.

Plays random policies and compares each with the defaults on the same traffic: is there one that scores higher while it
loses more requests for the same bill or a higher one? A policy holds two configurations and switches to the second
while a signal (requests waiting or running, the wait of the oldest one, the arrival rate, KV occupancy) is above a
threshold, so constants, policies that drop their batch cap in a queue and policies that shed every burst are among
them. `--without-rule` adds up the graded components without the rule of graders/same_traffic.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.markdown import markdown_table
from llmserve_env.agents.agent import AgentView
from llmserve_env.agents.registry import make_agent
from llmserve_env.arrays import Array
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.graders import grade_episode
from llmserve_env.graders.same_traffic import loses_more_for_nothing
from llmserve_env.tasks.catalog import BENCHMARK, load_task
from llmserve_env.tasks.task import Task

SIDE_BY_SIDE = 50
NUM_SEEDS = 4
SIGNALS = {
    "queue_depth": (1.0, 200.0),
    "active_requests": (8.0, 600.0),
    "oldest_wait_ms": (10.0, 3000.0),
    "window_rate_rps": (5.0, 150.0),
    "kv_cache_occupancy": (0.05, 1.0),
}
"""Signal -> range of thresholds, drawn on a log scale."""
CONSTANT_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Policies:
    """Policies that are played side by side, one per row."""

    calm: Array
    alarm: Array
    signal: Array
    threshold: Array

    def __len__(self) -> int:
        return len(self.calm)

    def rows(self, start: int, stop: int) -> Policies:
        """Some of them."""
        return Policies(*(getattr(self, name)[start:stop] for name in ("calm", "alarm", "signal", "threshold")))


class Switching:
    """Plays a different policy in every episode."""

    name = "switching"

    def __init__(self, policies: Policies) -> None:
        self._policies = policies

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        """Nothing to prepare."""

    def act(self, view: AgentView) -> Array:
        policies = self._policies
        seen = np.stack([view.metrics[name] for name in SIGNALS], axis=1)
        values = seen[np.arange(len(policies)), policies.signal]
        chosen: Array = np.where((values > policies.threshold)[:, None], policies.alarm, policies.calm)
        return chosen


def draw(task: Task, count: int, rng: np.random.Generator) -> Policies:
    """Random policies over the task's active knobs."""
    calm, alarm = (_configurations(task, count, rng) for _ in range(2))
    calm[: count // 4] = task.default_knobs  # the defaults, except in an alarm
    is_constant = rng.random(count) < CONSTANT_SHARE
    alarm[is_constant] = calm[is_constant]
    signal = rng.integers(0, len(SIGNALS), count)
    low, high = np.log(list(SIGNALS.values())).T
    return Policies(calm, alarm, signal, np.exp(rng.uniform(low[signal], high[signal])))


def _configurations(task: Task, count: int, rng: np.random.Generator) -> Array:
    rows = np.tile(task.default_knobs, (count, 1))
    for knob in task.knob_table:
        if knob.name not in task.knobs.active:
            continue
        if knob.scale == "log":
            rows[:, knob.column] = np.rint(np.exp(rng.uniform(np.log(knob.low), np.log(knob.high), count)))
        elif knob.kind == "float":
            rows[:, knob.column] = rng.uniform(knob.low, knob.high, count)
        else:
            rows[:, knob.column] = rng.integers(int(knob.low), int(knob.high) + 1, count)
    return rows


@dataclass(slots=True)
class Found:
    """What the search saw on one task."""

    task: str
    policies: int = 0
    lost_more: int = 0
    """Of them, those that lost more requests than the defaults for the same bill or a higher one."""
    scored_higher: int = 0
    """Of those, the ones that scored higher than the defaults."""
    highest: float = 0.0
    """The highest score among those that lost more."""
    best: float = 0.0
    """The highest score of all."""


def search(task: Task, count: int, seed: int, has_rule: bool = True) -> Found:
    """Play `count` policies, each on one of a few seeds."""
    found, rng = Found(task.versioned_id), np.random.default_rng(seed)
    policies = draw(task, count, rng)
    for start in range(0, count, SIDE_BY_SIDE):
        piece = policies.rows(start, min(start + SIDE_BY_SIDE, count))
        seeds = [SEED_RANGES["evaluation"][5000 + (start + i) % NUM_SEEDS] for i in range(len(piece))]
        for episode in play(Switching(piece), task, seeds):
            grade = grade_episode(episode)
            weights = task.grader.weights.items()
            score = grade.score if has_rule else sum(w * grade.breakdown[name] for name, w in weights)
            found.policies += 1
            found.best = max(found.best, score)
            if loses_more_for_nothing(episode):
                found.lost_more += 1
                found.highest = max(found.highest, score)
                found.scored_higher += score > default_score(task, episode.seed)
    return found


def default_score(task: Task, seed: int) -> float:
    """The score of the defaults on this seed; where requests are counted, they are the zero."""
    if task.grader.counts == "requests":
        return 0.0
    return grade_episode(play(make_agent("default_knobs"), task, [seed])[0]).score


def main() -> int:
    """Search, print a table, and fail if losing requests pays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", type=int, default=5000, metavar="N", help="policies per task (default: 5000)")
    parser.add_argument("--tasks", nargs="+", default=list(BENCHMARK), metavar="TASK", help="default: the core suite")
    parser.add_argument("--seed", type=int, default=0, help="of the search (default: 0)")
    parser.add_argument("--without-rule", action="store_true", help="what the components alone would give")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    found = [
        search(load_task(name), arguments.policies, arguments.seed, not arguments.without_rule)
        for name in arguments.tasks
    ]
    if arguments.json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        rows = [
            [
                f"`{f.task}`",
                f"{f.policies:,}",
                f"{f.lost_more:,}",
                f"{f.scored_higher:,}",
                f"{f.highest:.3f}",
                f"{f.best:.3f}",
            ]
            for f in found
        ]
        heads = [
            "task",
            "policies",
            "lost more, no cheaper",
            "of these above the defaults",
            "their best score",
            "best score",
        ]
        print(markdown_table(heads, rows))
    return int(any(one.scored_higher for one in found))


if __name__ == "__main__":
    sys.exit(main())
