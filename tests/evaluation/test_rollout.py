"""Playing seeds: the same alone, side by side or on several threads, and on disjoint ranges."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from llmserve_env.agents.agent import view_of
from llmserve_env.agents.registry import make_agent
from llmserve_env.env.episode import Episode, replay
from llmserve_env.evaluation.rollout import SEED_RANGES, chunks, evaluate, play, result_of
from llmserve_env.graders import grade
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.catalog import load_task


@pytest.mark.parametrize(("one", "other"), list(combinations(SEED_RANGES, 2)))
def test_seed_ranges_do_not_meet(one: str, other: str) -> None:
    a, b = SEED_RANGES[one], SEED_RANGES[other]
    assert max(a.start, b.start) >= min(a.stop, b.stop)


def test_an_episode_played_in_a_batch_is_the_episode_played_alone() -> None:
    task, seed = load_task("bursty_workload"), 300_001
    batched = play(make_agent("heuristic"), task, [300_000, seed, 300_002])[1]
    alone = Episode(task)
    alone.reset(seed)
    agent = make_agent("heuristic")
    agent.reset(task, [stream(seed, POLICY_STREAM)])
    while not alone.is_done:
        alone.step(agent.act(view_of(alone.batch, alone.step_count))[0])
    for name in ("terms", "metrics", "window", "knobs", "requested"):
        assert getattr(batched.trajectory, name).tobytes() == getattr(alone.trajectory, name).tobytes()
    assert batched.log() == alone.log()


def test_a_result_is_what_replaying_its_log_gives() -> None:
    episode = play(make_agent("random"), load_task("static_workload"), [5])[0]
    result = result_of("random", episode)
    again = replay(episode.log())
    assert result.score == pytest.approx(grade(episode.log()).score)
    assert result.total_reward == pytest.approx(float(again.trajectory.terms["reward"].sum()))
    assert 0.0 <= result.score <= 1.0
    assert 0.0 <= result.slo_attainment <= 1.0


def test_threads_and_chunks_change_nothing() -> None:
    seeds = [300_000, 300_001, 300_002]
    one = evaluate(chunks(["random", "static"], ["static_workload"], seeds, size=3), jobs=1)
    other = evaluate(chunks(["random", "static"], ["static_workload"], seeds, size=1), jobs=2)
    assert one == other
    assert [(r.agent, r.seed) for r in one] == [(a, s) for a in ("random", "static") for s in seeds]


def test_progress_counts_every_step() -> None:
    counted: list[int] = []
    play(make_agent("static"), load_task("static_workload"), [1, 2], counted.append)
    assert sum(counted) == 2 * load_task("static_workload").steps
    assert np.all(np.array(counted) > 0)
