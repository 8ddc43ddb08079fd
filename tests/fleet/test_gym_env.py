"""The fleet as a Gymnasium environment."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from llmserve_env.errors import ConfigError, InvalidActionError
from llmserve_env.fleet.gym_env import FleetGymEnv
from llmserve_env.fleet.task import TASKS, load_fleet_task
from tests.fleet.small import random_decision, small_task


@pytest.mark.parametrize("name", TASKS)
def test_every_fleet_task_is_registered_and_passes_gymnasiums_checker(name: str) -> None:
    assert f"LLMServe/{load_fleet_task(name).versioned_id}" in gym.registry
    check_env(FleetGymEnv(small_task(name)), skip_render_check=True)


@pytest.mark.parametrize("name", TASKS)
def test_two_copies_with_one_seed_stay_identical(name: str) -> None:
    task = small_task(name)
    left, right = FleetGymEnv(task), FleetGymEnv(task)
    np.testing.assert_array_equal(left.reset(seed=4)[0], right.reset(seed=4)[0])
    left.action_space.seed(1)
    for number in range(task.steps):
        action = left.action_space.sample()
        one, two = left.step(action), right.step(action)
        np.testing.assert_array_equal(one[0], two[0])
        assert one[1:4] == two[1:4]
        assert one[3] == (number == task.steps - 1)
        assert one[4]["cost"] == one[4]["judged"] - one[4]["outcome"].met >= 0


@pytest.mark.parametrize("name", TASKS)
def test_an_action_stands_for_the_decision_that_it_was_made_from(name: str) -> None:
    task = small_task(name)
    codec, rng = FleetGymEnv(task).actions, np.random.default_rng(0)
    for _ in range(20):
        decision = codec.decode(codec.encode(random_decision(task, rng)))
        task.check(decision)
        assert codec.decode(codec.encode(decision)) == decision
    assert len(codec.names) == len(codec.sizes)


def test_what_is_no_action_or_option_is_refused() -> None:
    environment = FleetGymEnv(small_task("elastic_fleet"))
    with pytest.raises(gym.error.ResetNeeded):
        environment.step(environment.action_space.sample())
    with pytest.raises(ConfigError, match="unknown reset option week; allowed: half, start_s, series"):
        environment.reset(seed=0, options={"week": 2})
    with pytest.raises(ConfigError, match="half must be one of train, test"):
        environment.reset(seed=0, options={"half": "both"})
    _, info = environment.reset(seed=0, options={"half": "test"})
    assert info["start_s"] >= 7 * 86_400.0
    with pytest.raises(InvalidActionError, match=r"on_demand\.serving must be a level from 0 to 4; got 99"):
        environment.step(np.array([99, 0, 0, 0]))


def test_an_old_version_keeps_its_id_its_prices_and_its_observation() -> None:
    with pytest.warns(DeprecationWarning, match="out of date"):
        old = gym.make("LLMServe/pd_pools-v1").unwrapped
    new = gym.make("LLMServe/pd_pools-v2").unwrapped
    assert isinstance(old, FleetGymEnv)
    assert isinstance(new, FleetGymEnv)
    assert (old.task.versioned_id, new.task.versioned_id) == ("pd_pools-v1", "pd_pools-v2")
    assert old.task.prices.prompt_usd_per_million == 0.29
    assert set(new.task.feature_names) - set(old.task.feature_names) == {
        f"{pool}.{name}" for pool in ("prefill", "decode") for name in ("queue", "running", "kv_use")
    }
