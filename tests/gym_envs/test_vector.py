"""The vector environment: info as Gymnasium arranges it, every autoreset mode, and grades at the end."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from llmserve_env.errors import ConfigError, EpisodeStateError
from llmserve_env.gym_envs.single import LLMServeGymEnv
from llmserve_env.gym_envs.vector import LLMServeVectorEnv
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.variants import with_changes

SHORT = with_changes(load_task("bursty_workload"), steps=4)
ACTIONS = np.tile([5, 5, 0, 0, 0, 0], (3, 1))


def both(mode: AutoresetMode, grades: bool = True) -> tuple[LLMServeVectorEnv, SyncVectorEnv]:
    """The native environment and Gymnasium's own vector of single ones."""
    native = LLMServeVectorEnv(SHORT, 3, autoreset_mode=mode, grades=grades)
    plain = SyncVectorEnv([lambda: LLMServeGymEnv(SHORT, grades=grades)] * 3, autoreset_mode=mode)
    return native, plain


def same(ours: Any, theirs: Any) -> bool:
    """Whether an entry of info says the same; held knobs are flags here and names there."""
    return bool(np.all(np.asarray(ours) == np.asarray(theirs)))


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_info_is_that_of_gymnasiums_vector_of_single_environments(mode: AutoresetMode) -> None:
    native, plain = both(mode)
    native.reset(seed=7)
    plain.reset(seed=7)
    for step in range(SHORT.steps):
        ours, theirs = native.step(ACTIONS), plain.step(ACTIONS)
        for index in range(4):
            np.testing.assert_array_equal(ours[index], theirs[index])
        assert set(ours[4]) == set(theirs[4])
        for name in ("cost_so_far_usd", "phase"):
            assert same(ours[4][name], theirs[4][name])
        for name, values in ours[4]["reward_terms"].items():
            assert same(values, theirs[4]["reward_terms"][name])
        assert same(ours[4]["knobs"]["batch_cap"], theirs[4]["knobs"]["batch_cap"])
        assert ("requests" in ours[4]) == (step == SHORT.steps - 1)
    assert same(ours[4]["requests"]["ttft_p50_ms"], theirs[4]["requests"]["ttft_p50_ms"])


def test_in_same_step_mode_the_last_observation_and_info_are_kept() -> None:
    native, _ = both(AutoresetMode.SAME_STEP)
    single = LLMServeGymEnv(SHORT)
    native.reset(seed=7)
    single.reset(seed=7)
    for _ in range(SHORT.steps):
        observations, _, _, truncated, info = native.step(ACTIONS)
        last, _, _, _, last_info = single.step(ACTIONS[0])
    assert truncated.all()
    np.testing.assert_array_equal(info["final_obs"][0], last)
    assert info["_final_info"].all()
    assert info["final_info"]["requests"]["ttft_p50_ms"][0] == last_info["requests"]["ttft_p50_ms"]
    assert not np.array_equal(observations[0], last)
    assert info["_seed"].all()
    native.step(ACTIONS)


def test_without_autoreset_some_episodes_can_be_restarted() -> None:
    native, plain = both(AutoresetMode.DISABLED)
    for env in (native, plain):
        env.reset(seed=1)
        for _ in range(2):
            env.step(ACTIONS)
    mask = np.array([True, False, False])
    ours, _ = native.reset(seed=[9, None, None], options={"reset_mask": mask.copy()})
    theirs, _ = plain.reset(seed=[9, None, None], options={"reset_mask": mask.copy()})
    np.testing.assert_array_equal(ours, theirs)
    for _ in range(2):
        ours, rewards, _, truncated, _ = native.step(ACTIONS)
        theirs, plain_rewards, *_ = plain.step(ACTIONS)
        np.testing.assert_array_equal(ours, theirs)
        assert rewards.tolist() == plain_rewards.tolist()
    assert truncated.tolist() == [False, True, True]
    with pytest.raises(EpisodeStateError, match="an episode has ended"):
        native.step(ACTIONS)


def test_what_a_vector_cannot_do_is_refused() -> None:
    native = LLMServeVectorEnv(SHORT, 3)
    with pytest.raises(ConfigError, match="needs autoreset_mode"):
        native.reset(options={"reset_mask": np.array([True, False, False])})
    off = LLMServeVectorEnv(SHORT, 3, autoreset_mode="Disabled")
    off.reset(seed=1)
    with pytest.raises(ConfigError, match="3 booleans"):
        off.reset(options={"reset_mask": [True, False, False]})
    with pytest.raises(ConfigError, match="for all episodes at once"):
        off.reset(options={"reset_mask": np.array([True, False, False]), "weights": {"cost": 1.0}})
    with pytest.raises(EpisodeStateError, match="reset the environment"):
        LLMServeVectorEnv(SHORT, 1).step(ACTIONS[:1])
    with pytest.raises(ConfigError, match="max_episode_steps=7"):
        LLMServeVectorEnv(SHORT, 1, max_episode_steps=7)


def test_scores_of_a_vector_are_those_of_single_environments() -> None:
    vector, single = gym.make_vec(load_task("static_workload").gym_id, num_envs=2), LLMServeGymEnv("static_workload")
    vector.reset(seed=30)
    single.reset(seed=31)
    for _ in range(200):
        *_, info = vector.step(ACTIONS[:2])
        *_, last = single.step(ACTIONS[0])
    assert info["score"][1] == last["score"]
    assert info["_score"].all()
    assert info["grade"]["breakdown"]["throughput"][1] == last["grade"]["breakdown"]["throughput"]


def test_masks_have_a_row_per_environment() -> None:
    vector = LLMServeVectorEnv("adversarial_multitenant", 2)
    vector.reset(seed=1)
    assert vector.action_masks().shape == (2, sum(len(knob.levels) for knob in vector.task.action_knobs))
