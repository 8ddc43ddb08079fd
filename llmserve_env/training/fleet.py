"""Training of the policy that corrects the informed rule of a fleet task."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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
TRAINING_DAYS, S_PER_DAY = 5, 86_400.0
"""Days of week 1 that are trained on; on the others the best policy of a training is chosen."""
CHECK_STEPS = 250_000


def train(task: FleetTask, settings: PpoSettings, report: Callable[[int, float], None], folder: Path = WEIGHTS) -> Path:
    """Train on the first five days of week 1, and write the policy that gains most on its last two, with its card."""
    calibration, rule = load_calibration(task), tuned_settings(task, "informed")
    worlds = training_worlds(task, WORLDS)
    is_held_out = worlds.start_s >= TRAINING_DAYS * S_PER_DAY
    held_out = worlds.some(np.nonzero(is_held_out)[0])
    fitted = worlds.some(np.nonzero(~is_held_out)[0])
    episodes = FleetCorrections(task, fitted, calibration, rule, GROUPS, GROUP_SIZE, settings.seed)
    learner = ResidualPpo(episodes, settings)
    none = CorrectionNetwork([(np.zeros((episodes.num_actions, episodes.num_features)), np.zeros(1))], {"rule": rule})
    rule_usd = play_network(task, held_out, calibration, none).mean()
    best_usd, checked = -np.inf, 0

    def check(steps: int, reward: float) -> None:
        nonlocal best_usd, checked
        report(steps, reward)
        if steps - checked < CHECK_STEPS:
            return
        checked = steps
        network = CorrectionNetwork(learner.layers(), _card(task, settings, rule, steps))
        usd = play_network(task, held_out, calibration, network).mean()
        if usd > best_usd:
            best_usd = usd
            network.card["held_out_gain"] = round(float((usd - rule_usd) / abs(rule_usd)), 4)
            save(network, task, folder)

    learner.learn(check)
    return folder / f"{task.versioned_id}.json"


def _card(task: FleetTask, settings: PpoSettings, rule: Mapping[str, float], steps: int) -> dict[str, Any]:
    """What a policy is, and how it was made."""
    return {
        "agent": "ppo",
        "task": task.versioned_id,
        "actions": list(action_names(task)),
        "rule": dict(rule),
        "command": f"llmserve fleet train {task.id} --steps {settings.steps} --seed {settings.seed}",
        "steps": steps,
        "seed": settings.seed,
        "package_version": PACKAGE_VERSION,
    }


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
