"""The searches behind `benchmarks.adaptivity`: rules by reward, constants by score, all on tuning seeds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from benchmarks.adaptive_rule import GRID, START, Rule, RuleAgent
from benchmarks.adaptivity_data import FILE, found, keep
from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import NAMES, mapping_from_knobs
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.planning.tuning.search import mean_score
from llmserve_env.planning.tuning.search import search as search_constant
from llmserve_env.tasks.catalog import BENCHMARK, load_task
from llmserve_env.tasks.task import Task

NUM_RULES = 400
NUM_CONSTANTS = 500
NUM_SEEDS = 6
CONSTANTS: dict[str, tuple[float, ...]] = {
    "batch_cap": (64, 128, 192, 256, 512),
    "kv_budget_fraction": (0.1, 0.2, 0.3, 0.4, 0.6, 0.85, 1.0),
    "speculation_depth": (0, 1),
    "quantization_tier": (0, 1, 2),
    "priority_routing": (0, 1),
}
"""The grid of constants. The split loses everywhere and is left to the sampler."""


def mean_return(episodes: list[PlayedEpisode]) -> float:
    """Mean total reward."""
    return float(np.mean([episode.trajectory.terms["reward"].sum() for episode in episodes]))


def search_rule(task: Task, *, foresight: bool, starts: tuple[Rule, ...], num_rules: int, seed: int) -> Rule:
    """Random restarts, then changes of one to three parameters that are kept when the return rises."""
    seeds, rng = SEED_RANGES["tuning"][:NUM_SEEDS], np.random.default_rng(seed)

    def value(rule: Rule) -> float:
        return mean_return(play(RuleAgent(rule, foresight=foresight), task, seeds))

    best, best_value = starts[0], -np.inf
    for start in starts:
        here, here_value = _climb(start, value, rng, num_rules // (2 * len(starts)))
        if here_value > best_value:
            best, best_value = here, here_value
    return _climb(best, value, rng, num_rules // 2)[0]


def _climb(start: Rule, value: Callable[[Rule], float], rng: np.random.Generator, tries: int) -> tuple[Rule, float]:
    best, best_value = start, value(start)
    for _ in range(tries):
        names = rng.permutation(list(GRID))[: rng.integers(1, 4)]
        changes: dict[str, Any] = {str(name): GRID[name][rng.integers(len(GRID[name]))] for name in names}
        candidate = replace(best, **changes)
        candidate_value = value(candidate)
        if candidate_value > best_value:
            best, best_value = candidate, candidate_value
    return best, best_value


STARTS = (START, replace(START, tier_surge=0, kv_surge=0.5), replace(START, tier_calm=1, kv_surge=0.4))
"""Switching tiers in surges, never, and always at INT8."""


def search_rules(names: tuple[str, ...] = BENCHMARK) -> None:
    """Find the adaptive rule with foresight and the reactive one, by reward."""
    content: dict[str, Any] = found() if FILE.is_file() else {"tasks": {}}
    for name in names:
        task = load_task(name)
        adaptive = search_rule(task, foresight=True, starts=STARTS, num_rules=NUM_RULES, seed=1)
        reactive = search_rule(task, foresight=False, starts=(adaptive,), num_rules=NUM_RULES // 2, seed=2)
        entry = content["tasks"].setdefault(name, {})
        entry |= {"adaptive": adaptive.as_mapping(), "reactive": reactive.as_mapping()}
        sys.stderr.write(f"{name}: rules found\n")
        content["rules"] = (
            f"{NUM_RULES} rules by return, {NUM_RULES // 2} without foresight, on {NUM_SEEDS} tuning seeds"
        )
        keep(content)


def grid(task: Task) -> Iterator[Array]:
    """Every combination of a few values of the active knobs: a sampler may miss one of two far-apart optima."""
    defaults = dict(zip(NAMES, task.default_knobs.tolist(), strict=True))
    levels = {name: CONSTANTS.get(name, ()) if name in task.knobs.active else () for name in NAMES}
    for combination in product(*(levels[name] or (defaults[name],) for name in NAMES)):
        yield np.array(combination, dtype=np.float64)


def search_constants(names: tuple[str, ...] = BENCHMARK) -> None:
    """Find the constant with the best score: a sampler's, or one of the grid."""
    content, seeds = found(), SEED_RANGES["tuning"][:NUM_SEEDS]
    for name in names:
        task = load_task(name)
        sampled = search_constant(task, NUM_CONSTANTS, NUM_SEEDS, 0)
        best, best_score = sampled.knobs, sampled.score or 0.0
        for knobs in grid(task):
            score = mean_score(task, knobs, seeds)
            if score > best_score:
                best, best_score = knobs, score
        content["tasks"][name]["constant"] = mapping_from_knobs(best, task.action_knobs)
        sys.stderr.write(f"{name}: constant found, {best_score:.3f}\n")
        content["constants"] = f"{NUM_CONSTANTS} sampled and a grid, by score on {NUM_SEEDS} tuning seeds"
        keep(content)


def search_everything(names: tuple[str, ...] = BENCHMARK) -> None:
    """Rules by reward, then constants by score on the frozen references."""
    search_rules(names)
    search_constants(names)
