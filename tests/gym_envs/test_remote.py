"""The remote environment equals the local one, observation by observation."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from llmserve_env.errors import ConfigError
from llmserve_env.gym_envs.single import LLMServeGymEnv
from tests.server.running import RunningServer


def test_a_remote_episode_is_the_local_one(tmp_path: Path) -> None:
    local = LLMServeGymEnv("adversarial_multitenant")
    with RunningServer(f"sqlite:///{tmp_path / 'sessions.db'}") as server:
        remote = gym.make("LLMServe/remote-v1", base_url=server.url, task="adversarial_multitenant")
        assert (remote.action_space, remote.observation_space) == (local.action_space, local.observation_space)
        np.testing.assert_array_equal(remote.reset(seed=5)[0], local.reset(seed=5)[0])
        local.action_space.seed(1)
        for _ in range(local.task.steps):
            action = local.action_space.sample()
            theirs, ours = remote.step(action), local.step(action)
            np.testing.assert_array_equal(theirs[0], ours[0])
            assert theirs[1:4] == ours[1:4]
            np.testing.assert_array_equal(remote.unwrapped.action_masks(), local.action_masks())  # type: ignore[attr-defined]
        assert theirs[4]["score"] == ours[4]["score"]
        assert theirs[4]["requests"] == ours[4]["requests"]
        with pytest.raises(ConfigError, match="unknown reset options"):
            remote.reset(options={"speed": 2})
        remote.reset(seed=5, options={"weights": {"cost": 0.9}})
        local.reset(seed=5, options={"weights": {"cost": 0.9}})
        assert remote.step(action)[1] == local.step(action)[1]
        remote.close()
