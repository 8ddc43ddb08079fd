"""Optuna's search for the constant with the best mean score on tuning seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import optuna

from llmserve_env.agents.constant import ConstantAgent
from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import Knob, named
from llmserve_env.evaluation.evaluate import result_of
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.runner import Runner, Threads
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.planning.tuning.recording import TunedConstant
from llmserve_env.tasks.task import Task

FLOAT_STEPS = (-0.1, -0.05, -0.02, -0.01, 0.01, 0.02, 0.05, 0.1)
FACTORS = (0.5, 0.7, 0.85, 1.2, 1.4, 2.0)
"""Steps of the polish."""


def mean_score(task: Task, knobs: Array, seeds: Sequence[int]) -> float:
    """What a constant scores on these seeds."""
    return float(np.mean([result_of("constant", episode).score for episode in play(ConstantAgent(knobs), task, seeds)]))


def _suggest(trial: optuna.Trial, knob: Knob) -> float:
    if knob.kind == "float":
        return float(trial.suggest_float(knob.name, knob.low, knob.high, step=0.01))
    if knob.scale == "log":
        return float(trial.suggest_int(knob.name, int(knob.low), int(knob.high), log=True))
    if knob.kind == "tier" and knob.levels != tuple(range(len(knob.levels))):
        return float(trial.suggest_categorical(knob.name, knob.levels))
    return float(trial.suggest_int(knob.name, int(knob.low), int(knob.high)))


def _is_active(knob: Knob, task: Task) -> bool:
    return knob.name in task.knobs.active


def _proposal(trial: optuna.Trial, task: Task) -> Array:
    knobs = task.default_knobs
    for knob in task.knob_table:
        if _is_active(knob, task):
            named(knobs)[knob.name] = _suggest(trial, knob)
    return knobs


def variations(params: dict[str, float], knobs: Sequence[Knob]) -> list[dict[str, float]]:
    """Constants that differ in one knob: all values of a short range, steps up and down in a long one."""
    found = []
    for knob in (knob for knob in knobs if knob.name in params):
        value = params[knob.name]
        if knob.kind == "float":
            values = {round(value + step, 2) for step in FLOAT_STEPS}
        elif knob.scale == "log":
            values = {float(round(value * factor)) for factor in FACTORS}
        else:
            values = (
                set(knob.levels) if knob.kind == "tier" else set(map(float, range(int(knob.low), int(knob.high) + 1)))
            )
        found += [{**params, knob.name: v} for v in sorted(values - {value}) if knob.low <= v <= knob.high]
    return found


def search(task: Task, num_trials: int, num_seeds: int, seed: int, runner: Runner | None = None) -> TunedConstant:
    """The best of `num_trials` constants, polished one knob at a time; the same arguments find the same one."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    seeds, runner = list(SEED_RANGES["tuning"][:num_seeds]), runner or Threads()
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=num_trials // 2)
    study = optuna.create_study(direction="maximize", sampler=sampler)

    def objective(trial: optuna.Trial) -> float:
        # The sampler needs each score before its next proposal, so there is one piece of work at a time.
        return runner.map(lambda knobs: mean_score(task, knobs, seeds), [_proposal(trial, task)])[0]

    study.enqueue_trial({knob.name: knob.default for knob in task.knob_table if _is_active(knob, task)})
    study.optimize(objective, n_trials=num_trials)
    tried: set[tuple[float, ...]] = set()
    while fresh := [v for v in variations(study.best_params, task.knob_table) if tuple(v.values()) not in tried]:
        tried |= {tuple(v.values()) for v in fresh}
        for variation in fresh:
            study.enqueue_trial(variation)
        study.optimize(objective, n_trials=len(fresh))
    best = task.default_knobs
    for name, value in study.best_params.items():
        named(best)[name] = value
    return TunedConstant(best, float(study.best_value))
