"""Gymnasium ids of the fleet tasks."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym

from llmserve_env.tasks.files import read_mapping

DATA = Path(__file__).parent / "data"


def register_fleet() -> None:
    """Register every task as `LLMServe/<task>-v<version>`, old versions too; a file is checked when one is made."""
    for path in sorted(DATA.glob("*.yaml")):
        data = read_mapping(path)
        name = f"LLMServe/{data['id']}-v{data['version']}"
        if name not in gym.registry:
            gym.register(id=name, entry_point="llmserve_env.fleet.gym_env:FleetGymEnv", kwargs={"task": path.stem})
