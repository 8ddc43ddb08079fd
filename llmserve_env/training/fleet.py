"""Training of the policy that corrects the informed rule of a fleet task."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from llmserve_env.arrays import Array
from llmserve_env.fleet.corrected import CorrectedRule, action_names
from llmserve_env.fleet.fluid.calibration import Calibration, load_calibration
from llmserve_env.fleet.fluid.episodes import FluidEpisodes
from llmserve_env.fleet.fluid.worlds import Worlds
from llmserve_env.fleet.learned import WEIGHTS, CorrectionNetwork
from llmserve_env.fleet.task import FleetTask
from llmserve_env.fleet.tuning import tuned_settings
from llmserve_env.fleet.weeks import training_worlds
from llmserve_env.training.fleet_episodes import FleetCorrections
from llmserve_env.training.residual_ppo import PpoSettings, ResidualPpo
from llmserve_env.version import PACKAGE_VERSION

WORLDS = 56
"""Episodes of week 1 that training draws from: each start of both series."""
GROUPS, GROUP_SIZE = 6, 112


def train(task: FleetTask, settings: PpoSettings, report: Callable[[int, float], None], folder: Path = WEIGHTS) -> Path:
    """Train on the surrogate and write the policy with its card."""
    calibration, rule = load_calibration(task), tuned_settings(task, "informed")
    worlds = training_worlds(task, WORLDS)
    episodes = FleetCorrections(task, worlds, calibration, rule, GROUPS, GROUP_SIZE, settings.seed)
    learner = ResidualPpo(episodes, settings)
    learner.learn(report)
    card = {
        "agent": "ppo",
        "task": task.versioned_id,
        "actions": list(action_names(task)),
        "rule": rule,
        "command": f"llmserve fleet train {task.id} --steps {settings.steps} --seed {settings.seed}",
        "steps": settings.steps,
        "seed": settings.seed,
        "package_version": PACKAGE_VERSION,
    }
    network = CorrectionNetwork(learner.layers(), card)
    gained = play_network(task, worlds, calibration, network) - episodes.rule_net_usd
    card["training_gain_usd_per_episode"] = round(float(gained.mean()), 3)
    return save(network, task, folder)


def play_network(task: FleetTask, worlds: Worlds, calibration: Calibration, network: CorrectionNetwork) -> Array:
    """Dollars of every world on the surrogate."""
    rows = np.arange(len(worlds))
    episodes = FluidEpisodes(task, worlds, calibration, rows)
    rule = CorrectedRule(task, network.card["rule"], len(rows))
    while not episodes.is_over:
        episodes.step(rule.decide(network(rule.look(episodes.observe()))))
    return episodes.net_usd


def save(network: CorrectionNetwork, task: FleetTask, folder: Path) -> Path:
    """Write weights and card; no pickle."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Any] = {}
    for number, (weight, bias) in enumerate(network.layers):
        tensors[f"layers.{number}.weight"], tensors[f"layers.{number}.bias"] = weight, bias
    save_file(tensors, folder / f"{task.versioned_id}.safetensors")
    path = folder / f"{task.versioned_id}.json"
    path.write_text(json.dumps(network.card, indent=1) + "\n", encoding="utf-8")
    return path
