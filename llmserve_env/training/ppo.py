"""PPO of Stable-Baselines3 on this environment: train, keep the best, write weights that need no torch."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from stable_baselines3 import PPO

from llmserve_env.tasks.task import Task
from llmserve_env.training.callbacks import Watch
from llmserve_env.training.checkpoint import load_checkpoint
from llmserve_env.training.results import Record, RunTimes, Trained
from llmserve_env.training.settings import TrainingRun, drawn_tasks
from llmserve_env.training.vec_env import ServingVecEnv


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
    """Train, and write the best policy by validation score, its card and its curve to `run.weights / run.name`."""
    # Networks this small are slower on several threads, and one thread gives the same figures everywhere.
    torch.set_num_threads(1)
    checkpoint = run.runs / run.name / "checkpoint"
    h = run.hyper_parameters
    env = ServingVecEnv(run.tasks, h.num_envs, run.seed, h.format, drawn_tasks(run))
    record = Record(run)
    model, watch = make_model(run, env), Watch(run, record, checkpoint)
    if run.resume:
        state = load_checkpoint(model, checkpoint)
        model.num_timesteps = int(state["steps"])
        watch.go_on_from(state)
    compile_kernels(run.tasks)
    began, began_cpu = time.perf_counter(), time.process_time()
    remaining = max(run.num_steps - model.num_timesteps, 0)
    model.learn(remaining, callback=watch, tb_log_name="ppo", reset_num_timesteps=not run.resume)
    total_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    times = RunTimes(total_s, env.seconds, record.seconds, cpu_s, env.cpu_seconds)
    return Trained(record.write("stable-baselines3"), record.best_score, record.best_step, times)


def compile_kernels(tasks: Sequence[Task]) -> None:
    """Serve one window of every task: the first call compiles or loads the core, which is not part of training."""
    env = ServingVecEnv(tasks, len(tasks), seed=0)
    env.reset()
    env.step_async(np.zeros((len(tasks), env.action_space.shape[0]), np.int64))
    env.step_wait()
