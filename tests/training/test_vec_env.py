"""The environment as the learner sees it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.tasks.catalog import load_task
from llmserve_env.training.vec_env import ServingVecEnv


def actions(env: ServingVecEnv, rng: np.random.Generator) -> Any:
    return np.stack([rng.integers(0, n, env.num_envs) for n in env.action_space.nvec], axis=1)


def run(env: ServingVecEnv, steps: int) -> list[tuple[Any, Any, Any, Any]]:
    rng = np.random.default_rng(0)
    env.reset()
    seen = []
    for _ in range(steps):
        env.step_async(actions(env, rng))
        seen.append(env.step_wait())
    return seen


def test_the_same_seed_gives_the_same_steps() -> None:
    task = load_task("static_workload")
    one, other = (run(ServingVecEnv([task], 3, seed=5), 80) for _ in range(2))
    for a, b in zip(one, other, strict=True):
        assert np.array_equal(a[0], b[0])
        assert np.array_equal(a[1], b[1])


def test_first_episodes_end_at_different_steps_and_later_ones_are_whole() -> None:
    task = load_task("static_workload")
    seen = run(ServingVecEnv([task], 4, seed=0), 260)
    ends = [[t for t, step in enumerate(seen, start=1) if step[2][e]] for e in range(4)]
    assert sorted(end[0] for end in ends) == [50, 100, 150, 200]
    lengths = [info["episode"]["l"] for step in seen for info in step[3] if "episode" in info]
    assert lengths == [task.steps] * len(lengths) != []


def test_an_end_is_a_truncation_with_the_last_observation_kept() -> None:
    seen = run(ServingVecEnv([load_task("static_workload")], 2, seed=0), 100)
    observations, _, dones, infos = seen[99]
    ended = int(np.flatnonzero(dones)[0])
    assert infos[ended]["TimeLimit.truncated"]
    assert infos[ended]["terminal_observation"][-1] == pytest.approx(0.5)
    assert observations[ended][-1] == 0.0


def test_episodes_use_training_seeds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    reset = EpisodeBatch.reset

    def noted(self: EpisodeBatch, index: int, seed: int) -> None:
        used.append(seed)
        reset(self, index, seed)

    monkeypatch.setattr(EpisodeBatch, "reset", noted)
    run(ServingVecEnv([load_task("static_workload")], 4, seed=0), 210)
    assert len(used) > 4
    assert all(seed in SEED_RANGES["training"] for seed in used)


def test_tasks_share_the_slots() -> None:
    tasks = [load_task(name) for name in ("static_workload", "bursty_workload")]
    env = ServingVecEnv(tasks, 5, seed=0)
    assert run(env, 3)[-1][0].shape == (5, env.observation_space.shape[0])
    with pytest.raises(ValueError, match="at least as many"):
        ServingVecEnv(tasks, 1, seed=0)
