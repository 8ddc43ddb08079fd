"""Policies from files: the forward pass, and refusal of what does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from llmserve_env.agents.policy import load_policy
from llmserve_env.agents.policy_format import PolicyFormat
from llmserve_env.agents.ppo import PpoAgent
from llmserve_env.errors import ConfigError, VersionMismatchError, WeightsNotFoundError
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.catalog import load_task
from llmserve_env.version import ENVIRONMENT_VERSION
from tests.agents.playing import rewards

USUAL = PolicyFormat()
FEATURE_NAMES, LEVELS = (
    USUAL.feature_names(load_task("static_workload")),
    USUAL.knob_levels(load_task("static_workload")),
)
NUM_LOGITS = sum(map(len, LEVELS))


def card(**changes: Any) -> dict[str, Any]:
    task = load_task("static_workload")
    made = {
        "tasks": {task.id: task.version},
        "environment_version": ENVIRONMENT_VERSION,
        "features": FEATURE_NAMES,
        "levels": LEVELS,
    }
    return made | changes


def write(folder: Path, bias: Any, card: dict[str, Any], hidden: int = 4) -> Path:
    rng = np.random.default_rng(0)
    tensors = {
        "layers.0.weight": rng.normal(size=(hidden, len(FEATURE_NAMES))).astype(np.float32),
        "layers.0.bias": np.zeros(hidden, np.float32),
        "layers.1.weight": np.zeros((len(bias), hidden), np.float32),
        "layers.1.bias": np.asarray(bias, np.float32),
    }
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "ppo.safetensors")
    (folder / "ppo.json").write_text(json.dumps(card), encoding="utf-8")
    return folder


def preferring(levels: list[int]) -> list[float]:
    """Logits under which these levels win."""
    logits: list[float] = []
    for wanted, offered in zip(levels, LEVELS, strict=True):
        logits += [float(i == wanted) for i in range(len(offered))]
    return logits


def test_the_most_probable_level_of_every_knob_wins_where_none_is_in_force(tmp_path: Path) -> None:
    wanted = [5, 2, 0, 1, 0, 1]
    policy = load_policy(write(tmp_path, preferring(wanted), card()))
    features = np.random.default_rng(1).normal(size=(3, len(FEATURE_NAMES)))
    assert policy.levels(features, np.full((3, 6), np.nan)).tolist() == [wanted] * 3


def test_a_knob_stays_unless_another_level_is_three_times_as_probable(tmp_path: Path) -> None:
    for odds, turned in ((2.9, 5), (3.1, 4)):
        logits = np.array(preferring([4, 0, 0, 0, 0, 0])) * np.log(odds)
        policy = load_policy(write(tmp_path, logits, card()))
        current = np.array([[levels[5 if k == 0 else 0] for k, levels in enumerate(LEVELS)]])
        assert policy.levels(np.zeros((1, len(FEATURE_NAMES))), current)[0, 0] == turned


def test_a_policy_plays(tmp_path: Path) -> None:
    folder = write(tmp_path, preferring([5, 5, 0, 0, 0, 0]), card())
    together = rewards(PpoAgent(folder), "static_workload", [3, 4], steps=10)
    alone = rewards(PpoAgent(folder), "static_workload", [4], steps=10)
    assert np.array_equal(together[:, 1], alone[:, 0])


@pytest.mark.parametrize(
    "changes",
    [{"environment_version": "0"}, {"features": [*FEATURE_NAMES[1:], "other"]}, {"tasks": {"static_workload": 99}}],
)
def test_a_policy_of_another_version_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = write(tmp_path, preferring([0] * 6), card(**changes))
    with pytest.raises(VersionMismatchError, match="train it again"):
        PpoAgent(folder).reset(load_task("static_workload"), [stream(0, POLICY_STREAM)])


def test_a_policy_of_another_task_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, preferring([0] * 6), card())
    with pytest.raises(WeightsNotFoundError, match="not bursty_workload"):
        PpoAgent(folder).reset(load_task("bursty_workload"), [stream(0, POLICY_STREAM)])


def test_a_network_of_another_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not of one policy"):
        load_policy(write(tmp_path, [0.0] * (NUM_LOGITS - 1), card()))
