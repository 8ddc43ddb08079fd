"""PPO of Stable-Baselines3 on this environment: train, keep the best, write weights that need no torch."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from stable_baselines3 import PPO

from llmserve_env.agents.policy import FEATURE_NAMES, LEVELS
from llmserve_env.evaluation.figures import learning_figure
from llmserve_env.evaluation.report import commit_of
from llmserve_env.tasks.catalog import load_task
from llmserve_env.training.callbacks import Watch
from llmserve_env.training.export import load_checkpoint, save_policy
from llmserve_env.training.settings import TrainingRun
from llmserve_env.training.vec_env import ServingVecEnv
from llmserve_env.version import ENVIRONMENT_VERSION, PACKAGE_VERSION


@dataclass(frozen=True, slots=True)
class Trained:
    """What a run left behind, and where its time went."""

    folder: Path
    score: float
    best_step: int
    total_s: float
    environment_s: float
    validation_s: float

    @property
    def environment_share(self) -> float:
        """Of the time spent training (validation aside)."""
        return self.environment_s / max(self.total_s - self.validation_s, 1e-9)


def make_model(run: TrainingRun, env: ServingVecEnv) -> PPO:
    """A fresh learner."""
    h = run.hyper_parameters
    span = h.learning_rate - h.final_learning_rate
    return PPO(
        "MlpPolicy",
        env,
        learning_rate=lambda remaining: h.final_learning_rate + span * remaining,
        n_steps=h.n_steps,
        batch_size=h.batch_size,
        n_epochs=h.n_epochs,
        gamma=h.gamma,
        gae_lambda=h.gae_lambda,
        clip_range=h.clip_range,
        ent_coef=h.ent_coef,
        vf_coef=h.vf_coef,
        max_grad_norm=h.max_grad_norm,
        policy_kwargs={"net_arch": list(h.hidden), "activation_fn": torch.nn.Tanh},
        tensorboard_log=str(run.runs / run.name),
        seed=run.seed,
        device="cpu",
    )


def train(run: TrainingRun) -> Trained:
    """Train, and write `weights/<name>/`: the best policy by validation score, its card and its curve."""
    # Networks this small are slower on several threads, and one thread gives the same figures everywhere.
    torch.set_num_threads(1)
    tasks = [load_task(name) for name in run.tasks]
    checkpoint = run.runs / run.name / "checkpoint"
    env = ServingVecEnv(tasks, run.hyper_parameters.num_envs, run.seed)
    model, watch = make_model(run, env), Watch(run, checkpoint)
    if run.resume:
        state = load_checkpoint(model, checkpoint)
        model.num_timesteps = int(state["steps"])
        watch.go_on_from(state)
    began = time.perf_counter()
    remaining = max(run.num_steps - model.num_timesteps, 0)
    model.learn(remaining, callback=watch, tb_log_name="ppo", reset_num_timesteps=not run.resume)
    total_s = time.perf_counter() - began
    folder = run.weights / run.name
    card = _card(run, watch)
    save_policy(watch.best_layers, card, folder)
    learning_figure(card).savefig(folder / "curve.png", dpi=110, metadata={"Software": None})
    return Trained(folder, watch.best_score, watch.best_step, total_s, env.seconds, watch.seconds)


def _card(run: TrainingRun, watch: Watch) -> dict[str, Any]:
    return {
        "agent": "ppo",
        "tasks": {name: load_task(name).version for name in run.tasks},
        "command": run.command,
        "seed": run.seed,
        "steps": run.num_steps,
        "best_step": watch.best_step,
        "validation": {"score": round(watch.best_score, 4), "episodes": run.num_validation_episodes, "seeds": "tuning"},
        "environment_version": ENVIRONMENT_VERSION,
        "package_version": PACKAGE_VERSION,
        "commit": commit_of(Path(__file__).resolve().parent),
        "hyper_parameters": run.hyper_parameters.model_dump(mode="json"),
        "features": FEATURE_NAMES,
        "levels": LEVELS,
        "curve": watch.curve,
    }
