"""A model of Stable-Baselines3 exported with the documented call plays without torch."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra [train]: pip install '.[train]'")

import torch
from stable_baselines3 import PPO

from llmserve_env.agents.own.loading import load_agent
from llmserve_env.errors import ConfigError
from llmserve_env.gym_envs.single import LLMServeGymEnv
from llmserve_env.training.export import export_policy
from tests.agents.own.examples import written
from tests.agents.playing import rewards


def model(**policy: object) -> PPO:
    return PPO(
        "MlpPolicy", LLMServeGymEnv("bursty_workload"), n_steps=8, batch_size=8, policy_kwargs=policy, device="cpu"
    )


def test_an_exported_model_plays(tmp_path: Path) -> None:
    learner = model(net_arch=[16])
    folder = export_policy(learner, tmp_path / "mine", task="bursty_workload")
    assert np.isfinite(rewards(load_agent(f"safetensors:{folder}"), "bursty_workload", [1], 10)).all()


def test_the_documented_onnx_file_chooses_what_the_model_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for needed in ("onnx", "onnxruntime"):
        pytest.importorskip(needed, reason="needs the extra [onnx]: pip install '.[onnx]' onnx")
    learner = model(net_arch=[16], activation_fn=torch.nn.ReLU)
    learner.save(tmp_path / "my_model")
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        runpy.run_path(str(written("to_onnx.py", tmp_path)))
    env, agent = LLMServeGymEnv("bursty_workload"), load_agent("onnx:policy.onnx")
    features, _ = env.reset(seed=1)
    expected = []
    for _ in range(10):
        action, _ = learner.predict(features, deterministic=True)
        features, reward, *_ = env.step(action)
        expected.append(reward)
    assert rewards(agent, "bursty_workload", [1], 10)[:, 0].tolist() == expected


def test_a_network_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ReLU"):
        export_policy(model(activation_fn=torch.nn.ReLU), tmp_path, task="bursty_workload")
