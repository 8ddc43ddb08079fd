"""A PPO model of Stable-Baselines3 as a folder that `--agent safetensors:FOLDER` plays without torch."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.numpy import save_file
from stable_baselines3 import PPO

from llmserve_env.agents.policy_format import PolicyFormat
from llmserve_env.errors import ConfigError
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import Task
from llmserve_env.training.checkpoint import policy_layers
from llmserve_env.training.results import layer_tensors
from llmserve_env.version import ENVIRONMENT_VERSION, PACKAGE_VERSION


def export_policy(model: PPO, folder: Path | str, task: Task | str | int) -> Path:
    """Write the policy of a model that was trained on a task's default Gymnasium id."""
    task = task if isinstance(task, Task) else load_task(task)
    network = model.policy.mlp_extractor.policy_net
    other = {type(layer).__name__ for layer in network} - {"Linear", "Tanh"}
    if other:
        raise ConfigError(
            f"the policy network has {', '.join(sorted(other))}; only linear layers with tanh between them can be "
            "exported: train with policy_kwargs={'activation_fn': torch.nn.Tanh}, or use ONNX"
        )
    layers, usual = policy_layers(model), PolicyFormat()
    features, levels = usual.feature_names(task), usual.knob_levels(task)
    linear = [layer for layer in network if isinstance(layer, torch.nn.Linear)]
    takes, gives = linear[0].in_features, model.policy.action_net.out_features
    if (takes, gives) != (len(features), sum(map(len, levels))):
        raise ConfigError(
            f"the model takes {takes} numbers to {gives}; {task.gym_id} has {len(features)} features and "
            f"{sum(map(len, levels))} levels: train it on that id"
        )
    card = {
        "agent": "ppo",
        "tasks": {task.id: task.version},
        "engine": "stable-baselines3",
        "steps": int(model.num_timesteps),
        "environment_version": ENVIRONMENT_VERSION,
        "package_version": PACKAGE_VERSION,
        "features": features,
        "levels": levels,
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(layer_tensors(layers), folder / "ppo.safetensors")
    (folder / "ppo.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    return folder
