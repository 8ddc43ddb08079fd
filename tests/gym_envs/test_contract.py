"""The Gymnasium environments: contract, determinism, spaces, and equality of the single and the vector environment."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import llmserve_env
from llmserve_env.env.features import features_of
from llmserve_env.env.spaces import ActionCodec
from llmserve_env.errors import EpisodeStateError, InvalidActionError
from llmserve_env.gym_envs.single import LLMServeGymEnv
from llmserve_env.gym_envs.vector import LLMServeVectorEnv

TASKS = llmserve_env.task_ids()
IDS = [llmserve_env.load_task(task).gym_id for task in TASKS]


@pytest.mark.parametrize("gym_id", IDS)
@pytest.mark.parametrize("encoding", ["discrete", "box"])
def test_every_registered_environment_passes_gymnasiums_checker(gym_id: str, encoding: str) -> None:
    check_env(gym.make(gym_id, action_encoding=encoding).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("gym_id", IDS)
def test_two_copies_with_one_seed_stay_identical(gym_id: str) -> None:
    a, b = gym.make(gym_id), gym.make(gym_id)
    a.action_space.seed(5)
    np.testing.assert_array_equal(a.reset(seed=9)[0], b.reset(seed=9)[0])
    for _ in range(40):
        action = a.action_space.sample()
        left, right = a.step(action), b.step(action)
        np.testing.assert_array_equal(left[0], right[0])
        assert left[1:4] == right[1:4]
        assert left[4]["reward_terms"] == right[4]["reward_terms"]


def test_an_episode_is_truncated_at_its_last_step_and_refuses_another() -> None:
    env = LLMServeGymEnv("static_workload")
    env.reset(seed=0)
    ends = [env.step(np.array([5, 5, 0, 0, 0, 0]))[2:4] for _ in range(env.task.steps)]
    assert ends[-1] == (False, True)
    assert set(ends[:-1]) == {(False, False)}
    with pytest.raises(EpisodeStateError, match="ended after 200 steps"):
        env.step(np.array([5, 5, 0, 0, 0, 0]))


def test_every_reward_term_is_in_info_and_the_reward_is_in_range() -> None:
    env = LLMServeGymEnv("bursty_workload")
    env.reset(seed=1)
    env.action_space.seed(1)
    for _ in range(60):
        observation, reward, *_, info = env.step(env.action_space.sample())
        assert -1.0 <= reward <= 1.0
        assert np.isfinite(observation).all()
        terms = info["reward_terms"]
        assert terms["reward"] == reward
        assert {"throughput", "latency", "violations", "cost", "memory"} <= set(terms)


def test_masked_knobs_keep_their_defaults_and_are_reported() -> None:
    env = LLMServeGymEnv("static_workload")
    _, info = env.reset(seed=0)
    assert set(info["masked_knobs"]) == {
        "speculation_depth", "quantization_tier", "prefill_decode_split", "priority_routing",
    }  # fmt: skip
    *_, info = env.step(np.array([5, 5, 4, 2, 1, 1]))
    assert info["knobs"]["speculation_depth"] == 0
    assert info["knobs"]["quantization_tier"] == "FP16"
    assert set(info["held_knobs"]) == set(env.task.masked_knobs)


def test_a_changed_knob_keeps_its_value_until_its_dwell_is_over() -> None:
    env = LLMServeGymEnv("adversarial_multitenant")
    dwell = env.task.knobs.dwell_steps["quantization_tier"]
    env.reset(seed=0)
    to_int8, to_fp16 = np.array([5, 5, 0, 1, 0, 0]), np.array([5, 5, 0, 0, 0, 0])
    env.step(to_int8)
    tiers = [env.step(to_fp16)[4]["knobs"]["quantization_tier"] for _ in range(dwell)]
    assert tiers == ["INT8"] * (dwell - 1) + ["FP16"]


@pytest.mark.parametrize("task", TASKS)
def test_the_vector_environment_equals_single_ones(task: str) -> None:
    vector, singles = LLMServeVectorEnv(task, num_envs=3), [LLMServeGymEnv(task) for _ in range(3)]
    observations, _ = vector.reset(seed=20)
    np.testing.assert_array_equal(observations, [env.reset(seed=20 + i)[0] for i, env in enumerate(singles)])
    vector.action_space.seed(2)
    for _ in range(30):
        actions = vector.action_space.sample()
        observations, rewards, terminated, truncated, _ = vector.step(actions)
        outcomes = [env.step(action) for env, action in zip(singles, actions, strict=True)]
        np.testing.assert_array_equal(observations, [o[0] for o in outcomes])
        assert rewards.tolist() == [o[1] for o in outcomes]
        assert not terminated.any()
        assert not truncated.any()


def test_the_vector_environment_resets_on_the_step_after_the_end() -> None:
    vector = LLMServeVectorEnv("static_workload", num_envs=2)
    vector.reset(seed=0)
    first_seeds = vector.seeds.copy()
    actions = np.tile([5, 5, 0, 0, 0, 0], (2, 1))
    for _ in range(vector.task.steps):
        _, _, _, truncated, _ = vector.step(actions)
    assert truncated.all()
    _, rewards, terminated, truncated, _ = vector.step(actions)
    assert not rewards.any()
    assert not terminated.any()
    assert not truncated.any()
    assert (vector.seeds != first_seeds).any()


def test_make_vec_builds_the_native_environment() -> None:
    vector = gym.make_vec(IDS[0], num_envs=4)
    assert isinstance(vector.unwrapped, LLMServeVectorEnv)
    assert vector.observation_space.shape == (
        4,
        len(features_of(llmserve_env.load_task("static_workload").action_knobs)),
    )


def test_discrete_levels_and_box_numbers_cover_the_knobs_ranges() -> None:
    task = llmserve_env.load_task("static_workload")
    ends = (ActionCodec(task, "box").decode(np.full((1, 6), end))[0] for end in (-1.0, 1.0))
    lowest, highest = (task.action_from_knobs(knobs).tolist() for knobs in ends)
    assert lowest == [1, 0.1, 0, 0, 0, 0]
    assert highest == [512, 1.0, 8, 2, 1, 1]
    first_levels = ActionCodec(task, "discrete").decode(np.zeros((1, 6), int))
    assert task.action_from_knobs(first_levels).tolist() == [[8, 0.1, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("encoding", "action"),
    [
        ("discrete", np.array([99, 0, 0, 0, 0, 0])),
        ("discrete", np.array([-1, 0, 0, 0, 0, 0])),
        ("discrete", np.zeros(6)),
        ("discrete", np.zeros(5, int)),
        ("box", np.array([np.nan, 0, 0, 0, 0, 0])),
        ("box", np.array([1.5, 0, 0, 0, 0, 0])),
    ],
)
def test_an_action_outside_its_space_is_refused(encoding: str, action: np.ndarray) -> None:
    env = LLMServeGymEnv("static_workload", action_encoding=encoding)  # type: ignore[arg-type]
    env.reset(seed=0)
    with pytest.raises(InvalidActionError):
        env.step(action)


def test_rendering_shows_the_window_and_draws_the_episode() -> None:
    text, picture = LLMServeGymEnv(1, render_mode="ansi"), LLMServeGymEnv(1, render_mode="rgb_array")
    for env in (text, picture):
        env.reset(seed=0)
        env.step(np.array([5, 5, 0, 0, 0, 0]))
    assert "TTFT p50/p99" in text.render()
    frame = picture.render()
    assert frame.ndim == 3
    assert frame.shape[2] == 3
    assert frame.std() > 0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("task", ["azure_conv", "burstgpt"])
def test_rendering_warns_of_nothing_while_nobody_has_waited_yet(task: str) -> None:
    env = LLMServeGymEnv(task, render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().std() > 0
    env.step(env.action_space.sample())
    assert env.render().std() > 0


def test_features_have_one_name_each() -> None:
    names = [name for name, _ in features_of(llmserve_env.load_task("static_workload").action_knobs)]
    assert len(names) == len(set(names)) == 38
