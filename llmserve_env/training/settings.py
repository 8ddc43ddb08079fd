"""Settings of a training run: hyper-parameters as data, its tasks, its length and its folders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llmserve_env.agents.policy import GENERALIST
from llmserve_env.agents.policy_format import PolicyFormat
from llmserve_env.errors import ConfigError
from llmserve_env.tasks.randomisation import drawn, perturbed, varied
from llmserve_env.tasks.task import Task

DRAWING_STREAM = 1
"""Keeps the drawing of tasks apart from a run's other random numbers."""
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class HyperParameters(BaseModel):
    """Values of `ppo.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_envs: Positive
    n_steps: Positive
    batch_size: Positive
    n_epochs: Positive
    learning_rate: Annotated[float, Field(gt=0.0)]
    final_learning_rate: Annotated[float, Field(ge=0.0)]
    """The rate falls linearly to this one."""
    gamma: Share
    gae_lambda: Share
    clip_range: Annotated[float, Field(gt=0.0)]
    ent_coef: Annotated[float, Field(ge=0.0)]
    vf_coef: Annotated[float, Field(ge=0.0)]
    max_grad_norm: Annotated[float, Field(gt=0.0)]
    hidden: tuple[Positive, ...]
    """Units of each hidden layer, of the policy and of the value network alike."""
    levels: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """Levels of knobs for which the policy has others than the discrete action space."""
    sees_task: bool = False
    """Whether the policy is told the task's promises, prices and fleet."""
    num_drawn_tasks: Annotated[int, Field(ge=0)] = 0
    """Tasks with randomised traffic, fleets and SLOs that are played besides the named ones, one episode each."""

    num_perturbed_tasks: Annotated[int, Field(ge=0)] = 0
    """The named tasks with perturbed traffic and host times that are played besides them, one episode each."""

    @property
    def format(self) -> PolicyFormat:
        """What goes into the policy and what comes out."""
        return PolicyFormat(self.levels, self.sees_task)


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """One call of `train`."""

    name: str
    """Folder of the results below `weights` and `runs`."""
    tasks: tuple[Task, ...]
    num_steps: int
    seed: int
    hyper_parameters: HyperParameters
    weights: Path
    runs: Path
    command: str
    resume: bool = False
    num_validation_episodes: int = 10
    num_validations: int = 12


def hyper_parameters(name: str, overrides: Mapping[str, Any], path: Path | None = None) -> HyperParameters:
    """Tuned values for a task (or the generalist), from the shipped file or another one."""
    source = path or Path(str(files("llmserve_env.training").joinpath("ppo.yaml")))
    if not source.is_file():
        raise ConfigError(f"there is no file of hyper-parameters {source}")
    data = yaml.safe_load(source.read_text(encoding="utf-8"))
    known = set(HyperParameters.model_fields)
    unknown = sorted(set(overrides) - known)
    if unknown:
        raise ConfigError(f"no hyper-parameter is called {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    values = {**data["defaults"], **data.get("tasks", {}).get(name, {}), **overrides}
    try:
        return HyperParameters.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{source}: {error}") from error


def drawn_tasks(run: TrainingRun) -> list[Task]:
    """The randomised tasks of a run: named ones perturbed; of the drawn ones every third varies a named task."""
    rng = np.random.default_rng(np.random.SeedSequence((run.seed, DRAWING_STREAM)))
    h, num_named = run.hyper_parameters, len(run.tasks)
    named = [run.tasks[i // 3 % num_named] for i in range(h.num_drawn_tasks)]
    found = [varied(task, rng) if i % 3 == 0 else drawn(rng) for i, task in enumerate(named)]
    return found + [perturbed(run.tasks[i % num_named], rng) for i in range(h.num_perturbed_tasks)]


def run_name(tasks: tuple[Task, ...]) -> str:
    """The folder that the policy of these tasks is kept in."""
    return tasks[0].id if len(tasks) == 1 else GENERALIST
