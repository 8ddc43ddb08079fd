"""Optuna's search for the constant with the best mean score on tuning seeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import optuna

from llmserve_env.agents.constant import ConstantAgent, tuned_file
from llmserve_env.env.knob_values import KNOBS, Knob, mapping_from_knobs
from llmserve_env.env.rollouts import default_knobs
from llmserve_env.evaluation.rollout import SEED_RANGES, play, result_of
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class TunedConstant:
    """The winner of a search."""

    knobs: Array
    score: float


def mean_score(task: Task, knobs: Array, seeds: Sequence[int]) -> float:
    """What a constant scores on these seeds."""
    return float(np.mean([result_of("constant", episode).score for episode in play(ConstantAgent(knobs), task, seeds)]))


def _suggest(trial: optuna.Trial, knob: Knob) -> float:
    if knob.kind == "float":
        return float(trial.suggest_float(knob.name, knob.low, knob.high, step=0.01))
    if knob.high > 100:
        return float(trial.suggest_int(knob.name, int(knob.low), int(knob.high), log=True))
    return float(trial.suggest_int(knob.name, int(knob.low), int(knob.high)))


def _proposal(trial: optuna.Trial, task: Task) -> Array:
    knobs = default_knobs()
    for k, knob in enumerate(KNOBS):
        if knob.name in task.knobs.active:
            knobs[k] = _suggest(trial, knob)
    return knobs


def search(
    task: Task, num_trials: int, num_seeds: int, seed: int, progress: Callable[[int], object] | None = None
) -> TunedConstant:
    """The best of `num_trials` constants; the same arguments find the same one."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    seeds = list(SEED_RANGES["tuning"][:num_seeds])
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=num_trials // 3),
    )

    def objective(trial: optuna.Trial) -> float:
        score = mean_score(task, _proposal(trial, task), seeds)
        if progress:
            progress(1)
        return score

    study.enqueue_trial(
        {k.name: v for k, v in zip(KNOBS, default_knobs().tolist(), strict=True) if k.name in task.knobs.active}
    )
    study.optimize(objective, n_trials=num_trials)
    best = default_knobs()
    for k, knob in enumerate(KNOBS):
        if knob.name in study.best_params:
            best[k] = study.best_params[knob.name]
    return TunedConstant(best, float(study.best_value))


def record(task_id: str, found: TunedConstant, command: str, num_trials: int, num_seeds: int) -> None:
    """Put a constant into the file that the `tuned` agent reads, with what it takes to find it again."""
    path = tuned_file()
    data = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"tasks": {}}
    seeds = SEED_RANGES["tuning"][:num_seeds]
    data["tasks"][task_id] = {
        "knobs": mapping_from_knobs(found.knobs),
        "score": round(found.score, 4),
        "task_version": load_task(task_id).version,
        "environment_version": ENVIRONMENT_VERSION,
        "command": command,
        "trials": num_trials,
        "seeds": f"{seeds.start}..{seeds.stop - 1}",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2, sort_keys=True) + "\n", encoding="utf-8")
