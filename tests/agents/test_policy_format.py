"""What a policy sees and chooses from: told about its task, with levels of its own, on tasks it never saw."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from llmserve_env.agents.own.loading import load_agent
from llmserve_env.agents.policy_format import PolicyFormat, format_of
from llmserve_env.agents.task_features import task_vector
from llmserve_env.errors import VersionMismatchError
from llmserve_env.tasks.catalog import load_task
from llmserve_env.version import ENVIRONMENT_VERSION
from tests.agents.playing import rewards

TASK = load_task("bursty_workload")
FINE = PolicyFormat({"kv_budget_fraction": (0.1, 0.125, 0.15)}, sees_task=True)


def written(folder: Path, described: PolicyFormat) -> str:
    """A policy of this format that always prefers the last level of every knob."""
    features, levels = described.feature_names(TASK), described.knob_levels(TASK)
    bias = np.concatenate([np.arange(len(values), dtype=np.float32) * 10.0 for values in levels])
    save_file(
        {"layers.0.weight": np.zeros((len(bias), len(features)), np.float32), "layers.0.bias": bias},
        folder / "ppo.safetensors",
    )
    card = {
        "tasks": {},
        "environment_version": ENVIRONMENT_VERSION,
        "features": features,
        "levels": levels,
    }
    (folder / "ppo.json").write_text(json.dumps(card), encoding="utf-8")
    return f"safetensors:{folder}"


def test_the_task_follows_the_observation() -> None:
    features = np.zeros((2, len(PolicyFormat().feature_names(TASK))), np.float32)
    inputs = FINE.inputs(TASK, features)
    assert inputs.shape == (2, len(FINE.feature_names(TASK)))
    np.testing.assert_array_equal(inputs[1, features.shape[1] :], task_vector(TASK))
    assert PolicyFormat().inputs(TASK, features) is features


def test_a_card_describes_the_format_it_was_written_with() -> None:
    card = {"features": FINE.feature_names(TASK), "levels": FINE.knob_levels(TASK)}
    found = format_of(card, TASK)
    assert (found.sees_task, found.knob_levels(TASK)) == (True, FINE.knob_levels(TASK))


@pytest.mark.parametrize("task", ["bursty_workload", "azure_conv"])
def test_a_policy_with_levels_of_its_own_plays_them_on_any_task(tmp_path: Path, task: str) -> None:
    agent = load_agent(written(tmp_path, FINE))
    assert np.isfinite(rewards(agent, task, [1], 5)).all()


def test_levels_out_of_range_are_refused(tmp_path: Path) -> None:
    agent = load_agent(written(tmp_path, PolicyFormat({"kv_budget_fraction": (0.5, 1.5)})))
    with pytest.raises(VersionMismatchError, match="sets other knobs or values"):
        agent.reset(TASK, [])
