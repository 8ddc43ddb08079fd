"""Reset options and keyword arguments are obeyed or refused; the last info has the grade; masks tell what applies."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from llmserve_env.env.episode import Episode
from llmserve_env.env.spaces import ActionCodec
from llmserve_env.errors import ConfigError, InvalidActionError
from llmserve_env.graders import grade_episode
from llmserve_env.gym_envs.single import LLMServeGymEnv
from llmserve_env.gym_envs.vector import LLMServeVectorEnv
from llmserve_env.gym_envs.wrappers import Curriculum, RandomisedTasks
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.randomisation import drawn, varied
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import with_changes

STEADY = np.array([5, 5, 0, 0, 0, 0])


def gym_id(task: str, suffix: str = "") -> str:
    return load_task(task).gym_id.replace("-v", f"{suffix}-v")


def longer() -> Task:
    """A task of more steps than the registered id."""
    return with_changes(load_task("static_workload"), steps=300, workload={"horizon_s": 300})


def first_rewards(env: Any, steps: int = 20) -> list[float]:
    return [env.step(STEADY)[1] for _ in range(steps)]


def test_the_task_option_plays_that_task_for_one_episode() -> None:
    env, other = gym.make(gym_id("bursty_workload")), LLMServeGymEnv("adversarial_multitenant")
    env.reset(seed=3)
    own = first_rewards(env)
    _, info = env.reset(seed=3, options={"task": "adversarial_multitenant"})
    other.reset(seed=3)
    assert info["task_id"] == "adversarial_multitenant"
    assert first_rewards(env) == first_rewards(other)
    env.reset(seed=3)
    assert first_rewards(env) == own


@pytest.mark.parametrize("vector", [False, True])
def test_weights_replace_those_of_the_task(vector: bool) -> None:
    env: Any = LLMServeVectorEnv("static_workload", 1) if vector else LLMServeGymEnv("static_workload")
    action = STEADY[None] if vector else STEADY
    env.reset(seed=1, options={"weights": {"memory": 0.9}})
    _, reward, _, _, info = env.step(action)
    weights = {**env.task.reward.weights.model_dump(), "memory": 0.9}
    terms = {name: np.asarray(info["reward_terms"][name]).item() for name in weights}
    signs = {name: 1.0 if name == "throughput" else -1.0 for name in weights}
    expected = sum(signs[name] * weights[name] * terms[name] for name in weights)
    assert np.asarray(reward).item() == pytest.approx(expected)


def test_weights_may_be_given_when_the_environment_is_made() -> None:
    made = gym.make(gym_id("static_workload"), reward_weights={"cost": 0.5})
    reset = LLMServeGymEnv("static_workload")
    made.reset(seed=1)
    reset.reset(seed=1, options={"weights": {"cost": 0.5}})
    assert first_rewards(made) == first_rewards(reset)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tasks": "static_workload"}, "unknown reset options: tasks"),
        ({"weights": {"speed": 1.0}}, "no reward weight 'speed'"),
        ({"weights": {"cost": -1.0}}, "cost must be a number of at least 0"),
        ({"weights": {"cost": "much"}}, "cost must be a number of at least 0; got 'much'"),
        ({"weights": [1.0]}, r"by name; got \[1.0\]"),
        ({"task": 1.5}, "by its id, number or file, or as a Task; got 1.5"),
        ({"task": longer()}, "has 300 steps, but"),
    ],
)
def test_what_cannot_be_done_is_refused(options: dict[str, Any], reason: str) -> None:
    env = gym.make(gym_id("static_workload"))
    with pytest.raises(ConfigError, match=reason):
        env.reset(seed=1, options=options)


def test_a_task_with_other_spaces_is_refused() -> None:
    task = load_task("static_workload")
    wider = with_changes(task, knobs={"active": [*task.knobs.active, "token_budget"]})
    with pytest.raises(ConfigError, match="other action or observation spaces"):
        LLMServeGymEnv("static_workload").reset(options={"task": wider})


def test_the_registered_id_says_how_long_an_episode_is() -> None:
    env = gym.make(gym_id("bursty_workload"))
    assert env.spec is not None
    assert env.spec.max_episode_steps == load_task("bursty_workload").steps == 200


def test_the_last_info_has_the_score_the_grade_and_percentiles_over_requests() -> None:
    env, episode = gym.make(gym_id("bursty_workload")), Episode("bursty_workload")
    env.reset(seed=4)
    episode.reset(4)
    knobs = ActionCodec(episode.task).decode(STEADY[None])[0]
    for _ in range(episode.task.steps):
        *_, truncated, info = env.step(STEADY)
        episode.step(knobs)
    grade = grade_episode(episode)
    assert truncated
    assert info["score"] == grade.score
    assert info["grade"]["breakdown"] == grade.breakdown
    assert info["requests"] == grade.requests.as_dict()
    assert info["requests"]["ttft_p50_ms"] > 0


def test_a_task_that_cannot_be_graded_still_has_percentiles() -> None:
    env = LLMServeGymEnv(with_changes(load_task("static_workload"), steps=3))
    env.reset(seed=1)
    info = [env.step(STEADY)[4] for _ in range(3)][-1]
    assert "score" not in info
    assert info["requests"]["requests"] > 0


def test_flat_actions_number_the_combinations_of_active_levels() -> None:
    flat, codec = gym.make(gym_id("static_workload", "-flat")), ActionCodec(load_task("static_workload"), "flat")
    assert flat.action_space == gym.spaces.Discrete(81)
    decoded = codec.decode(np.arange(81))
    assert len({tuple(row) for row in decoded.tolist()}) == 81
    multi = LLMServeGymEnv("static_workload")
    for env in (flat, multi):
        env.reset(seed=2)
    assert flat.step(5 * 9 + 5)[1] == multi.step(STEADY)[1]
    for wrong in (np.array([81]), np.array([-1]), np.array([0.5])):
        with pytest.raises(InvalidActionError, match="whole number from 0 to 80"):
            codec.decode(wrong)


@pytest.mark.parametrize("encoding", ["discrete", "flat"])
def test_masked_actions_are_held_and_others_apply(encoding: Any) -> None:
    env = LLMServeGymEnv("adversarial_multitenant", action_encoding=encoding)
    env.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(40):
        masks = env.action_masks()
        if encoding == "flat":
            action = rng.choice(np.flatnonzero(masks))
        else:
            ends = np.cumsum(env.action_space.nvec)[:-1]  # type: ignore[attr-defined]
            action = np.array([rng.choice(np.flatnonzero(part)) for part in np.split(masks, ends)])
        *_, info = env.step(action)
        assert info["held_knobs"] == ()


def test_a_dwelling_knob_offers_only_its_value() -> None:
    env = LLMServeGymEnv("adversarial_multitenant")
    env.reset(seed=1)
    env.step(np.array([5, 5, 0, 1, 0, 0]))
    tiers = np.split(env.action_masks(), np.cumsum(env.action_space.nvec)[:-1])[3]  # type: ignore[attr-defined]
    assert tiers.tolist() == [False, True, False]


def test_box_actions_have_no_masks() -> None:
    env = LLMServeGymEnv("static_workload", action_encoding="box")
    env.reset(seed=1)
    with pytest.raises(InvalidActionError, match="cannot be masked"):
        env.action_masks()


def test_a_masking_algorithm_trains_on_the_default_id() -> None:
    contrib = pytest.importorskip("sb3_contrib", reason="needs sb3-contrib: pip install sb3-contrib")
    model = contrib.MaskablePPO("MlpPolicy", gym.make(gym_id("adversarial_multitenant")), n_steps=16, batch_size=16)
    model.learn(32)
    assert model.num_timesteps >= 32


def test_randomised_tasks_differ_and_follow_the_seed() -> None:
    def play() -> list[float]:
        env = RandomisedTasks(
            gym.make(gym_id("bursty_workload")), lambda rng: varied(load_task("bursty_workload"), rng)
        )
        env.reset(seed=5)
        found = [float(env.step(STEADY)[1])]
        env.reset()
        return [*found, *first_rewards(env, 3)]

    assert play() == play()
    env = RandomisedTasks(gym.make(gym_id("bursty_workload")), lambda rng: drawn(rng))
    assert env.reset(seed=5)[1]["task_id"] == "drawn"
    with pytest.raises(ConfigError, match="this wrapper chooses the task"):
        env.reset(options={"task": "static_workload"})


def test_a_curriculum_goes_on_when_its_bar_is_reached() -> None:
    tasks = ["static_workload", "bursty_workload"]
    env = Curriculum(gym.make(gym_id("static_workload")), tasks, promote_at=[-1000.0], num_episodes=2)
    played = []
    for seed in range(3):
        _, info = env.reset(seed=seed)
        played.append(info["task_id"])
        while not env.step(STEADY)[3]:
            pass
    assert played == ["static_workload", "static_workload", "bursty_workload"]
    with pytest.raises(ConfigError, match="2 tasks need 1"):
        Curriculum(env, tasks, promote_at=[])
