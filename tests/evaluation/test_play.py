"""Playing seeds: the same alone, side by side or on several threads, and on disjoint ranges."""

from __future__ import annotations

from itertools import combinations
from multiprocessing.reduction import ForkingPickler

import pytest

from llmserve_env.agents.agent import view_of
from llmserve_env.agents.registry import make_agent
from llmserve_env.env.episode import Episode, replay
from llmserve_env.env.observation import state_of
from llmserve_env.evaluation.evaluate import evaluate, result_of
from llmserve_env.evaluation.play import PlayPiece, play, play_piece
from llmserve_env.evaluation.runner import Threads
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.graders import grade, grade_episode
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.catalog import load_task
from llmserve_env.workloads import sample


@pytest.mark.parametrize(("one", "other"), list(combinations(SEED_RANGES, 2)))
def test_seed_ranges_do_not_meet(one: str, other: str) -> None:
    a, b = SEED_RANGES[one], SEED_RANGES[other]
    assert max(a.start, b.start) >= min(a.stop, b.stop)


def live_episode(agent_name: str, task_id: str, seed: int) -> Episode:
    """The episode of an agent, played step by step."""
    episode = Episode(task_id)
    episode.reset(seed)
    agent = make_agent(agent_name)
    agent.reset(episode.task, [stream(seed, POLICY_STREAM)])
    while not episode.is_done:
        episode.step(agent.act(view_of(episode.batch, episode.step_count))[0])
    return episode


def test_an_episode_played_in_a_batch_is_the_episode_played_alone() -> None:
    task, seed = load_task("bursty_workload"), 300_001
    batched = play(make_agent("heuristic"), task, [300_000, seed, 300_002])[1]
    alone = live_episode("heuristic", "bursty_workload", seed)
    for name in ("terms", "metrics", "window", "knobs", "requested"):
        assert getattr(batched.trajectory, name).tobytes() == getattr(alone.trajectory, name).tobytes()
    assert batched.log() == alone.log()
    assert grade_episode(batched) == grade_episode(alone)


def test_a_played_episode_adds_up_to_the_totals_of_the_live_one() -> None:
    played = play(make_agent("default_knobs"), load_task("static_workload"), [7])[0]
    live = live_episode("default_knobs", "static_workload", 7)
    totals = played.totals()
    assert totals == state_of(live)["totals"]
    assert totals["cost_usd"] == live.batch.control[0]["cost_so_far_usd"] > 0.0
    assert totals["finished"] > 0.0


def test_pieces_and_played_episodes_travel_between_processes() -> None:
    piece = PlayPiece("default_knobs", load_task("static_workload"), (7,))
    there = ForkingPickler.loads(ForkingPickler.dumps(piece))
    back = ForkingPickler.loads(ForkingPickler.dumps(play_piece(there)[0]))
    here = play_piece(piece)[0]
    assert back.task.file == piece.task.file
    assert back.totals() == here.totals()
    assert grade_episode(back) == grade_episode(here)


def test_given_traffic_replaces_that_of_the_seed() -> None:
    task = load_task("static_workload")
    requests = sample(task.workload, 11)
    given = play(make_agent("default_knobs"), task, [3], [requests])[0]
    drawn = play(make_agent("default_knobs"), task, [11])[0]
    assert given.totals()["arrived"] == drawn.totals()["arrived"]
    assert given.totals()["arrived"] != play(make_agent("default_knobs"), task, [3])[0].totals()["arrived"]


def test_a_result_is_what_replaying_its_log_gives() -> None:
    episode = play(make_agent("random"), load_task("static_workload"), [5])[0]
    result = result_of("random", episode)
    again = replay(episode.log())
    assert result.score == pytest.approx(grade(episode.log()).score)
    assert result.total_reward == pytest.approx(float(again.trajectory.terms["reward"].sum()))
    assert 0.0 <= result.score <= 1.0
    assert 0.0 <= result.slo_attainment <= 1.0


def test_threads_and_sizes_of_pieces_change_nothing() -> None:
    agents, tasks, seeds = ["random", "default_knobs"], [load_task("static_workload")], [300_000, 300_001, 300_002]
    one = evaluate(agents, tasks, seeds, Threads(1), size=3)
    other = evaluate(agents, tasks, seeds, Threads(2), size=1)
    assert one == other
    assert [(r.agent, r.seed) for r in one] == [(a, s) for a in agents for s in seeds]
