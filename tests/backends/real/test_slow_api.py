"""An ordinary API, slower than a task's fleet: an episode with the defaults still serves its requests to the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.backends.real.spending import Budget
from llmserve_env.graders.components import components
from llmserve_env.graders.grade import weights_of
from tests.backends.real import streaming_server as scripts
from tests.backends.real.playing import counted, key, play, real_episode, short_task
from tests.backends.real.streaming_server import Exchange, streaming_server

__all__ = ["key"]
pytestmark = pytest.mark.usefixtures("key")


def slow(exchange: Exchange) -> None:
    """The first token comes after several windows, and long after the patience of the task's clients."""
    exchange.server.release.wait(0.3)
    scripts.answer_all(exchange)


def test_clients_of_a_slow_api_are_served_although_the_task_has_less_patience() -> None:
    task = short_task(steps=30, patience_s=0.05)
    with streaming_server(slow) as server:
        episode = real_episode(server, task)
        seen = play(episode)
    assert episode.step_count == 30 and seen[-1]["metadata"]["real"]["stopped"] is None
    assert counted(seen, "abandoned") == 0 and counted(seen, "finished") > 0
    found = components(episode.played())
    assert 0.0 < found["slo"] <= 1.0 and 0.0 < found["throughput"] <= 1.0


def test_patience_slos_and_windows_are_settings() -> None:
    with streaming_server(scripts.stall) as server:
        seen = play(real_episode(server, short_task(), patience_s=0.05), lambda seen: counted(seen, "abandoned") > 2)
        assert seen[-1]["slo_compliance_rate"] == 0.0
    with streaming_server() as server:
        play(real_episode(server, short_task(steps=3), window_s=0.2, slo_scale=60.0))
        episode = real_episode(server, short_task(steps=3), window_s=0.2, slo_scale=60.0)
        play(episode)
    requests = episode.batch.backend.book.requests  # type: ignore[attr-defined]
    slos_s = (requests["slo_at_ps"] - requests["arrival_at_ps"]) / 1e12
    assert set(np.round(slos_s).astype(int)) <= {60, 300} and len(slos_s) > 0
    # Three windows of 0.2 s carry what three windows of 0.05 s of the task hold.
    assert requests["arrival_at_ps"].max() / 1e12 > 0.15


def test_the_number_of_requests_under_way_is_a_setting() -> None:
    def hold(exchange: Exchange) -> None:
        exchange.begin()
        exchange.token()
        exchange.server.release.wait()

    with streaming_server(hold) as server:
        episode = real_episode(server, short_task(rate_rps=100.0), max_in_flight=3)
        seen = play(episode, lambda seen: seen[-1]["queue_depth"] > 3)
    assert server.most_open <= 3 and seen[-1]["metadata"]["real"]["in_force"]["batch_cap"] == 3


@pytest.mark.parametrize("caps", [{"max_requests": 6}, {"max_tokens": 150}, {"max_usd": 0.0003}])
def test_caps_are_shared_among_the_windows_so_that_an_episode_reaches_its_end(caps: dict[str, Any]) -> None:
    with streaming_server() as server:
        episode = real_episode(server, short_task(steps=20), **caps)
        seen = play(episode)
    real = seen[-1]["metadata"]["real"]
    assert episode.step_count == 20 and real["stopped"] is None and real["not_sent"] > 0
    assert 0 < real["spent"]["requests"] <= caps.get("max_requests", 1_000)
    # Not everything is spent at the beginning.
    assert seen[5]["metadata"]["real"]["spent"]["requests"] < real["spent"]["requests"]


def test_shares_that_were_not_used_are_kept_and_never_exceed_the_cap() -> None:
    budget = Budget(RealSettings(max_requests=10, price_in_usd_per_million=1.0, price_out_usd_per_million=1.0))
    for windows_left in range(20, 0, -1):
        allowance = budget.allowance(windows_left)
        assert allowance.requests <= 10 - budget.spent.requests + 1e-9
        while windows_left % 5 == 0 and allowance.take(1, 1):
            assert budget.reserve(1, 1)
    assert 5 <= budget.spent.requests <= 10


def test_memory_that_no_action_can_give_back_is_neither_charged_nor_graded() -> None:
    task = short_task(steps=2)
    with streaming_server() as server:
        episode = real_episode(server, task)
        play(episode)
    batch, played = episode.batch, episode.played()
    weights, terms = task.reward.weights, batch.terms[0]
    without_memory = (
        weights.throughput * terms["throughput"]
        - weights.latency * terms["latency"]
        - weights.violations * terms["violations"]
        - weights.cost * terms["cost"]
    )
    assert terms["memory"] == 1.0
    assert terms["reward"] == pytest.approx(min(max(without_memory, -1.0), 1.0))
    grader = task.grader.model_copy(update={"weights": {"slo": 0.3, "cost": 0.1, "memory": 0.6}})
    graded = replace(played, task=task.model_copy(update={"grader": grader}))
    assert weights_of(graded) == pytest.approx({"slo": 0.75, "cost": 0.25})
    assert weights_of(replace(graded, fixed_knobs=frozenset())) == pytest.approx(
        {"slo": 0.3, "cost": 0.1, "memory": 0.6}
    )
