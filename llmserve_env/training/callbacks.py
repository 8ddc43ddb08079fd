"""What happens beside learning: validation on held-out seeds, the best policy kept, checkpoints, and the curve."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from stable_baselines3.common.callbacks import BaseCallback
from tqdm import tqdm

from llmserve_env.agents.ppo import PpoAgent
from llmserve_env.evaluation.rollout import SEED_RANGES, play, result_of
from llmserve_env.tasks.catalog import load_task
from llmserve_env.training.export import policy_layers, policy_network, save_checkpoint
from llmserve_env.training.settings import TrainingRun

Array = npt.NDArray[Any]
_log = logging.getLogger(__name__)


class Watch(BaseCallback):
    """Validates the greedy policy now and then, as agents will run it, and remembers the best."""

    def __init__(self, run: TrainingRun, checkpoint: Path) -> None:
        super().__init__()
        self._run = run
        self._checkpoint = checkpoint
        self._every = max(run.num_steps // run.num_validations, 1)
        self._next = self._every
        self._bar: Any = None
        self.curve: dict[str, list[float]] = {"steps": [], "return": [], "validation_steps": [], "validation_score": []}
        self.best_score = -np.inf
        self.best_step = 0
        self.best_layers: list[tuple[Array, Array]] = []
        self.seconds = 0.0
        """Wall time spent validating."""

    def go_on_from(self, state: dict[str, Any]) -> None:
        """Take up the curve of an earlier run; its best policy has to be beaten again by this one."""
        self.curve = state["curve"]
        self._next = int(state["steps"]) + self._every

    def _on_training_start(self) -> None:
        # Shown on terminals only: a log file has no use for a moving bar.
        self._bar = tqdm(
            total=self._run.num_steps, initial=self.num_timesteps, unit="step", desc=self._run.name, disable=None
        )

    def _on_step(self) -> bool:
        self._bar.update(self.training_env.num_envs)
        return True

    def _on_rollout_end(self) -> None:
        finished = [episode["r"] for episode in self.model.ep_info_buffer]
        if finished:
            self.curve["steps"].append(self.num_timesteps)
            self.curve["return"].append(round(float(np.mean(finished)), 4))

    def _on_rollout_start(self) -> None:
        # The policy has just been updated: the moment to look at it.
        if self.num_timesteps >= self._next:
            self._next += self._every
            self.validate()

    def validate(self) -> None:
        """Play the validation seeds greedily; keep the policy if it is the best so far."""
        began = time.perf_counter()
        layers = policy_layers(self.model)
        score = validation_score(layers, self._run)
        self.curve["validation_steps"].append(self.num_timesteps)
        self.curve["validation_score"].append(round(score, 4))
        if score > self.best_score:
            self.best_score, self.best_step, self.best_layers = score, self.num_timesteps, layers
        save_checkpoint(self.model, {"steps": self.num_timesteps, "curve": self.curve}, self._checkpoint)
        self.logger.record("validation/score", score)
        _log.info(
            "%s: %d steps, validation score %.4f (best %.4f)",
            self._run.name,
            self.num_timesteps,
            score,
            self.best_score,
        )
        self.seconds += time.perf_counter() - began

    def _on_training_end(self) -> None:
        self.validate()
        self._bar.close()


def validation_score(layers: list[tuple[Array, Array]], run: TrainingRun) -> float:
    """Mean score over the run's tasks on seeds of the tuning range."""
    seeds = list(SEED_RANGES["tuning"][: run.num_validation_episodes])
    scores = []
    for name in run.tasks:
        agent = _Greedy(layers)
        scores += [result_of(agent.name, episode).score for episode in play(agent, load_task(name), seeds)]
    return float(np.mean(scores))


class _Greedy(PpoAgent):
    """The policy being trained."""

    def __init__(self, layers: list[tuple[Array, Array]]) -> None:
        super().__init__()
        self._policy = policy_network(layers, {})

    def reset(self, task: Any, rngs: Any) -> None:
        """Already loaded."""
