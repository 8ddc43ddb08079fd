"""The environment behind a table: Gymnasium's contract, and actions that change what is served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from llmserve_env.backends.table.backend import TableBackend
from llmserve_env.backends.table.grid import MEASURES, Grid
from llmserve_env.backends.table.lookup import LookupTable
from llmserve_env.env.episode import Episode, replay
from llmserve_env.env.spaces import ActionEncoding
from llmserve_env.errors import ConfigError, EpisodeStateError, InvalidLogError
from llmserve_env.graders import grade_episode
from llmserve_env.gym_envs.single import LLMServeGymEnv
from llmserve_env.gym_envs.table_backed import TableBackedEnv
from llmserve_env.request_outcomes import request_figures
from llmserve_env.tasks.catalog import load_task

BATCH_8, BATCH_128 = np.array([0, 8, 0, 0, 0, 0]), np.array([5, 8, 0, 0, 0, 0])


def even_table(tps: float, gpu_mem_gb: float = 20.0, batch_size: tuple[int, ...] = (1, 512)) -> LookupTable:
    """The same measures everywhere, but tokens per second in proportion to the batch."""
    grid = Grid(batch_size, (0.1, 1.0), (0,), (0,), (8192,))
    measures = np.empty((*grid.shape, len(MEASURES)))
    measures[...] = (20.0, 30.0, 10.0, 0.0, gpu_mem_gb, 0.001)
    measures[..., 3] = tps * np.array(batch_size).reshape(-1, 1, 1, 1, 1)
    return LookupTable(grid, measures, 40.0, {})


def play(env: TableBackedEnv, action: np.ndarray, steps: int, seed: int = 0) -> list[dict[str, Any]]:
    env.reset(seed=seed)
    return [env.step(action)[4] | {"metrics": env.window_metrics()} for _ in range(steps)]


@pytest.mark.parametrize("encoding", ["discrete", "box"])
def test_gymnasiums_checker_passes(table_path: Path, encoding: ActionEncoding) -> None:
    check_env(TableBackedEnv(table_path, "static_workload", encoding), skip_render_check=True)


def test_spaces_are_those_of_the_simulator(table: LookupTable) -> None:
    ours, simulator = TableBackedEnv(table, 1), LLMServeGymEnv(1)
    assert ours.action_space == simulator.action_space
    assert ours.observation_space == simulator.observation_space


def test_every_task_is_played_with_rewards_in_range() -> None:
    for number in (1, 2, 3):
        env = TableBackedEnv(even_table(20.0), number)
        env.action_space.seed(number)
        env.reset(seed=number)
        for _ in range(30):
            observation, reward, terminated, _, info = env.step(env.action_space.sample())
            assert env.observation_space.contains(observation)
            assert -1.0 <= reward <= 1.0
            assert info["reward_terms"]["reward"] == reward
            assert info["backend"] == "table"
            assert not terminated


def test_an_episode_knows_what_became_of_its_requests(table: LookupTable) -> None:
    task = load_task(1)
    episode = Episode(task, backend=TableBackend(task, table))
    episode.reset(1)
    for _ in range(20):
        episode.step(task.default_knobs)
    found = request_figures(episode.played().requests)
    assert found.num_requests == episode.trajectory.totals()["arrived"] > 0
    assert found.ttft.num_requests > 0


def test_one_seed_gives_one_episode(table: LookupTable) -> None:
    a, b = TableBackedEnv(table, 1), TableBackedEnv(table, 1)
    a.action_space.seed(2)
    np.testing.assert_array_equal(a.reset(seed=4)[0], b.reset(seed=4)[0])
    for _ in range(40):
        action = a.action_space.sample()
        left, right = a.step(action), b.step(action)
        np.testing.assert_array_equal(left[0], right[0])
        assert left[1:] == right[1:]


def test_the_action_changes_the_queue(table: LookupTable) -> None:
    narrow, wide = (play(TableBackedEnv(table, 1), action, 60)[-1] for action in (BATCH_8, BATCH_128))
    assert narrow["metrics"]["queue_depth"] > wide["metrics"]["queue_depth"]
    assert narrow["metrics"]["ttft_p50_ms"] > 2 * wide["metrics"]["ttft_p50_ms"]
    assert narrow["metrics"]["throughput_tps"] < wide["metrics"]["throughput_tps"]
    assert narrow["reward_terms"]["reward"] < wide["reward_terms"]["reward"]


def test_tokens_are_served_at_the_tables_rate_while_the_batch_is_full() -> None:
    rates = [info["metrics"]["throughput_tps"] for info in play(TableBackedEnv(even_table(5.0), 1), BATCH_8, 60)[30:]]
    # A request that finishes within a slice leaves the rest of its share unused.
    assert np.mean(rates) == pytest.approx(5.0 * 8, rel=0.02)


def test_ttft_is_the_tables_plus_the_wait() -> None:
    relaxed = play(TableBackedEnv(even_table(1000.0), 1), BATCH_128, 20)
    waits = [info["metrics"]["ttft_p50_ms"] for info in relaxed]
    assert np.mean(waits) == pytest.approx(20.0, rel=0.05)
    assert all(info["metrics"]["ttft_p99_ms"] > info["metrics"]["ttft_p50_ms"] for info in relaxed)
    assert all(info["reward_terms"]["slo"] == 1.0 for info in relaxed)


def test_a_batch_that_does_not_fit_is_flagged_and_serves_nothing() -> None:
    infos = play(TableBackedEnv(even_table(20.0, gpu_mem_gb=41.0), 1), BATCH_128, 10)
    assert any(info["is_out_of_memory"] for info in infos)
    assert all(info["metrics"]["throughput_tps"] == 0.0 for info in infos)
    assert all(info["reward_terms"]["memory"] == 1.0 for info in infos if info["is_out_of_memory"])


def test_requests_are_conserved(table: LookupTable) -> None:
    env = TableBackedEnv(table, 1)
    counts = np.zeros(4, int)
    env.reset(seed=5)
    for _ in range(80):
        env.step(BATCH_8)
        counts += [int(env.window_counts()[name]) for name in ("arrived", "finished", "rejected", "abandoned")]
    held = env.window_metrics()["queue_depth"] + env.window_metrics()["active_requests"]
    assert counts[0] == counts[1:].sum() + held


def test_an_episode_ends_and_refuses_another_step() -> None:
    env = TableBackedEnv(even_table(20.0), 1)
    with pytest.raises(EpisodeStateError, match="reset"):
        env.step(BATCH_8)
    env.reset(seed=0)
    ends = [env.step(BATCH_128)[2:4] for _ in range(env.task.steps)]
    assert ends[-1] == (False, True)
    assert set(ends[:-1]) == {(False, False)}
    with pytest.raises(EpisodeStateError, match="ended after"):
        env.step(BATCH_8)


def test_a_table_that_does_not_cover_the_actions_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch_size goes from 1 to 256; discrete actions need 8 to 512"):
        TableBackedEnv(even_table(20.0, batch_size=(1, 256)), 1)
    TableBackedEnv(even_table(20.0, batch_size=(8, 512)), 1)
    with pytest.raises(ConfigError, match="box actions need 1 to 512"):
        TableBackedEnv(even_table(20.0, batch_size=(8, 512)), 1, "box")


def test_a_table_exported_for_another_task_is_refused(table: LookupTable) -> None:
    with pytest.raises(ConfigError, match=r"exported for static_workload, not for bursty_workload"):
        TableBackedEnv(table, load_task("bursty_workload"))


def test_an_episode_on_a_table_has_the_plans_score_but_no_replay_and_no_simulator() -> None:
    env = TableBackedEnv(even_table(20.0), 1)
    env.reset(seed=0)
    env.step(BATCH_128)
    with pytest.raises(InvalidLogError, match="table mode"):
        replay(env.episode.log())
    found = grade_episode(env.episode)
    assert found.plan is not None
    assert (found.mode, found.score) == ("table", found.plan.score)
    with pytest.raises(EpisodeStateError, match="table mode have no simulator"):
        env.episode.batch.snapshot()


def test_a_request_that_starts_and_loses_its_place_is_judged_once() -> None:
    """A batch that does not fit sends requests back to the queue, where they may pass their deadline."""
    env = TableBackedEnv(even_table(0.5, gpu_mem_gb=41.0), 1)
    env.reset(seed=0)
    judged = arrived = 0
    for _ in range(60):
        env.step(BATCH_128)
        judged += int(env.window_counts()["judged_by_class"].sum())
        arrived += int(env.window_counts()["arrived"])
    assert 0 < judged <= arrived
