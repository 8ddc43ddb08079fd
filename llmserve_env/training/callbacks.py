"""What happens during learning: progress, validation on held-out seeds, checkpoints and the learning curve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from tqdm import tqdm

from llmserve_env.training.checkpoint import policy_layers, save_checkpoint
from llmserve_env.training.results import Record
from llmserve_env.training.settings import TrainingRun


class Watch(BaseCallback):
    """Validates the policy now and then, and leaves a checkpoint each time."""

    def __init__(self, run: TrainingRun, record: Record, checkpoint: Path) -> None:
        super().__init__()
        self._run = run
        self._record = record
        self._checkpoint = checkpoint
        self._every = max(run.num_steps // run.num_validations, 1)
        self._next = self._every
        self._bar: Any = None

    def go_on_from(self, state: dict[str, Any]) -> None:
        """Continue the curve of an earlier run; the best policy is chosen again from this one."""
        self._record.curve = state["curve"]
        self._next = int(state["steps"]) + self._every

    def _on_training_start(self) -> None:
        done, run = self.num_timesteps, self._run
        # Shown on terminals only: a log file has no use for a moving bar.
        self._bar = tqdm(total=run.num_steps, initial=done, unit="step", desc=run.name, disable=None)

    def _on_step(self) -> bool:
        self._bar.update(self.training_env.num_envs)
        return True

    def _on_rollout_end(self) -> None:
        finished = [episode["r"] for episode in self.model.ep_info_buffer]
        if finished:
            self._record.note_return(self.num_timesteps, float(np.mean(finished)))

    def _on_rollout_start(self) -> None:
        # The policy has just been updated: the moment to look at it.
        if self.num_timesteps >= self._next:
            self._next += self._every
            self._validate()

    def _validate(self) -> None:
        score = self._record.validate(policy_layers(self.model), self.num_timesteps)
        self.logger.record("validation/score", score)
        save_checkpoint(self.model, {"steps": self.num_timesteps, "curve": self._record.curve}, self._checkpoint)

    def _on_training_end(self) -> None:
        self._validate()
        self._bar.close()
