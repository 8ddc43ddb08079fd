"""Settings of a training run: hyper-parameters as data, its tasks, its length and its folders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llmserve_env.agents.policy import GENERALIST
from llmserve_env.errors import ConfigError
from llmserve_env.tasks.task import Task

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


def run_name(tasks: tuple[Task, ...]) -> str:
    """The folder that the policy of these tasks is kept in."""
    return tasks[0].id if len(tasks) == 1 else GENERALIST
