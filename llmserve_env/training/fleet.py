"""Training of the policy that corrects the informed rule of a fleet task."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from llmserve_env.fleet.corrected import action_names
from llmserve_env.fleet.fluid.calibration import load_calibration
from llmserve_env.fleet.learned import WEIGHTS, CorrectionNetwork
from llmserve_env.fleet.task import FleetTask
from llmserve_env.fleet.tuned import tuned_settings
from llmserve_env.fleet.weeks import held_out_traffic, training_worlds
from llmserve_env.training.fleet_choice import Candidates, choose
from llmserve_env.training.fleet_episodes import FleetCorrections
from llmserve_env.training.residual_ppo import PpoSettings, ResidualPpo
from llmserve_env.version import PACKAGE_VERSION

WORLDS = 168
"""Episodes of week 1 that training draws from: each start of both series, for each of the swings."""
GROUPS, GROUP_SIZE = 6, 112
TRAINING_DAYS, S_PER_DAY = 5, 86_400.0
"""Days of week 1 that are trained on; on the others the best policy of a training is chosen."""
CHECK_STEPS = 250_000


def train(task: FleetTask, settings: PpoSettings, report: Callable[[int, float], None], folder: Path = WEIGHTS) -> Path:
    """Train on the first five days of week 1, and write the policy that earns most on its last two, with its card.

    Candidates are the best on the surrogate; the engine decides among them, since the surrogate is not what is served.
    """
    calibration, rule = load_calibration(task), tuned_settings(task, "informed")
    worlds = training_worlds(task, WORLDS)
    is_held_out = worlds.start_s >= TRAINING_DAYS * S_PER_DAY
    fitted = worlds.some(np.nonzero(~is_held_out)[0])
    episodes = FleetCorrections(task, fitted, calibration, rule, GROUPS, GROUP_SIZE, settings.seed)
    learner = ResidualPpo(episodes, settings)
    candidates, checked = Candidates(task, worlds.some(np.nonzero(is_held_out)[0]), calibration), 0

    def check(steps: int, reward: float) -> None:
        nonlocal checked
        report(steps, reward)
        if steps - checked >= CHECK_STEPS:
            checked = steps
            candidates.offer(CorrectionNetwork(learner.layers(), _card(task, settings, rule, steps)))

    learner.learn(check)
    none = CorrectionNetwork([(np.zeros((episodes.num_actions, episodes.num_features)), np.zeros(1))], {"rule": rule})
    chosen = choose(task, none, candidates.networks, held_out_traffic(task, TRAINING_DAYS * S_PER_DAY))
    low, high = chosen.gain.ci95
    gain = {"mean": round(chosen.gain.mean, 4), "ci95": [round(low, 4), round(high, 4)]}
    card = {**chosen.network.card, "gain_over_rule_on_held_out_days": gain}
    return save(CorrectionNetwork(chosen.network.layers, card), task, folder)


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
