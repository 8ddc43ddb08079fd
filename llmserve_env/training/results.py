"""What a training run measures and leaves behind, whichever library learns: the best policy, its card and its curve."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from llmserve_env.agents.policy import PolicyNetwork, keep_former
from llmserve_env.agents.policy_format import PolicyFormat
from llmserve_env.agents.ppo import PpoAgent
from llmserve_env.arrays import Array
from llmserve_env.evaluation.evaluate import result_of
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.plots import learning_plot
from llmserve_env.evaluation.report import commit_of
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.tasks.task import Task
from llmserve_env.training.settings import TrainingRun
from llmserve_env.version import ENVIRONMENT_VERSION, PACKAGE_VERSION

Layers = list[tuple[Array, Array]]
"""Weight and bias of each layer, from the observation to the logits."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Where the time of a run went, loading and compiling aside: on the wall, and of this process's cores."""

    total_s: float
    environment_s: float
    validation_s: float
    cpu_s: float
    environment_cpu_s: float

    @property
    def learner_s(self) -> float:
        return self.total_s - self.environment_s - self.validation_s

    @property
    def environment_share(self) -> float:
        """Of the time spent training (validation aside)."""
        return self.environment_s / max(self.total_s - self.validation_s, 1e-9)

    def in_words(self) -> str:
        """A line for the terminal."""
        return (
            f"{self.total_s:.1f} s in all ({self.cpu_s:.1f} s of CPU): environment {self.environment_s:.1f} s "
            f"({self.environment_cpu_s:.1f} s of CPU), validation {self.validation_s:.1f} s, "
            f"learner {self.learner_s:.1f} s; the environment takes {self.environment_share:.0%} of training"
        )


@dataclass(frozen=True, slots=True)
class Trained:
    """What a run left behind, and where its time went."""

    folder: Path
    score: float
    best_step: int
    times: RunTimes


def policy_network(layers: Layers, card: dict[str, Any]) -> PolicyNetwork:
    """The network as agents run it."""
    weights, biases = zip(*layers, strict=True)
    return PolicyNetwork(
        tuple(w.astype(np.float64) for w in weights), tuple(b.astype(np.float64) for b in biases), card
    )


def layer_tensors(layers: Layers) -> dict[str, Array]:
    """The layers by the names under which `agents.policy` reads them."""
    tensors = {f"layers.{i}.weight": weight for i, (weight, _) in enumerate(layers)}
    return tensors | {f"layers.{i}.bias": bias for i, (_, bias) in enumerate(layers)}


def validation_score(layers: Layers, run: TrainingRun) -> float:
    """Mean score over the run's tasks of the greedy policy, as agents will run it, on seeds of the tuning range."""
    seeds = list(SEED_RANGES["tuning"][: run.num_validation_episodes])
    agent = _InTraining(layers, run.hyper_parameters.format)
    scores = [result_of(agent.name, episode).score for task in run.tasks for episode in play(agent, task, seeds)]
    return float(np.mean(scores))


class _InTraining(PpoAgent):
    """The policy being trained, which no file holds yet."""

    def __init__(self, layers: Layers, described: PolicyFormat) -> None:
        super().__init__()
        self._layers, self._format = layers, described

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        self._policy = policy_network(self._layers, {"levels": self._format.knob_levels(task)})
        self._actions = self._format.codec(task)


class Record:
    """The curve of a run and its best policy so far."""

    def __init__(self, run: TrainingRun) -> None:
        self.run = run
        # Taken now: writing the weights changes the checkout.
        self.commit = commit_of(Path(__file__).resolve().parent)
        self.curve: dict[str, list[float]] = {"steps": [], "return": [], "validation_steps": [], "validation_score": []}
        self.best_score = -np.inf
        self.best_step = 0
        self._best: Layers = []
        self.seconds = 0.0
        """Wall time spent validating."""

    def note_return(self, step: int, mean_return: float) -> None:
        """A point of the training curve."""
        self.curve["steps"].append(step)
        self.curve["return"].append(round(mean_return, 4))

    def validate(self, layers: Layers, step: int) -> float:
        """Play the validation seeds; keep the policy if it is the best so far."""
        began = time.perf_counter()
        score = validation_score(layers, self.run)
        self.curve["validation_steps"].append(step)
        self.curve["validation_score"].append(round(score, 4))
        if score > self.best_score:
            self.best_score, self.best_step, self._best = score, step, layers
        _log.info("%s: %d steps, validation score %.4f (best %.4f)", self.run.name, step, score, self.best_score)
        self.seconds += time.perf_counter() - began
        return score

    def write(self, engine: str) -> Path:
        """Write `ppo.safetensors`, `ppo.json` and `curve.png` of the best policy."""
        folder = self.run.weights / self.run.name
        keep_former(folder, self.run.tasks[0])
        folder.mkdir(parents=True, exist_ok=True)
        save_file(layer_tensors(self._best), folder / "ppo.safetensors")
        card = self._card(engine)
        (folder / "ppo.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
        learning_plot(card).savefig(folder / "curve.png", dpi=110, metadata={"Software": None})
        return folder

    def _card(self, engine: str) -> dict[str, Any]:
        run = self.run
        return {
            "agent": "ppo",
            "tasks": {task.id: task.version for task in run.tasks},
            "command": run.command,
            "engine": engine,
            "seed": run.seed,
            "steps": run.num_steps,
            "best_step": self.best_step,
            "score": {"mean": round(self.best_score, 4), "episodes": run.num_validation_episodes, "seeds": "tuning"},
            "environment_version": ENVIRONMENT_VERSION,
            "package_version": PACKAGE_VERSION,
            "commit": self.commit,
            "hyper_parameters": run.hyper_parameters.model_dump(mode="json"),
            "features": run.hyper_parameters.format.feature_names(run.tasks[0]),
            "levels": run.hyper_parameters.format.knob_levels(run.tasks[0]),
            "curve": self.curve,
        }
