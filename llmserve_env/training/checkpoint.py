"""Checkpoints as safetensors: everything a later run needs to go on, in files that cannot run code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from stable_baselines3 import PPO

from llmserve_env.errors import WeightsNotFoundError
from llmserve_env.training.results import Layers


def policy_layers(model: PPO) -> Layers:
    """Weight and bias of each layer from the observation to the logits."""
    linear = [m for m in model.policy.mlp_extractor.policy_net if isinstance(m, torch.nn.Linear)]
    return [
        (m.weight.detach().numpy().astype(np.float32).copy(), m.bias.detach().numpy().astype(np.float32).copy())
        for m in [*linear, model.policy.action_net]
    ]


def save_checkpoint(model: PPO, state: dict[str, Any], folder: Path) -> None:
    """Both networks, the optimizer, and what was measured so far."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"policy.{name}": t.contiguous() for name, t in model.policy.state_dict().items()}
    for index, moments in model.policy.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": torch.as_tensor(value).contiguous() for name, value in moments.items()}
    save_file(tensors, folder / "checkpoint.safetensors")
    (folder / "checkpoint.json").write_text(json.dumps(state), encoding="utf-8")


def load_checkpoint(model: PPO, folder: Path) -> dict[str, Any]:
    """Bring a model back to a checkpoint; returns what was measured up to it."""
    path = folder / "checkpoint.safetensors"
    if not path.is_file():
        raise WeightsNotFoundError(f"there is no checkpoint in {folder} to continue from; start without --resume")
    tensors = load_file(path)
    policy = {name.removeprefix("policy."): t for name, t in tensors.items() if name.startswith("policy.")}
    model.policy.load_state_dict(policy)
    moments: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, kind = name.split(".")
            moments.setdefault(int(index), {})[kind] = tensor
    optimizer = model.policy.optimizer
    optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    state: dict[str, Any] = json.loads((folder / "checkpoint.json").read_text(encoding="utf-8"))
    return state
