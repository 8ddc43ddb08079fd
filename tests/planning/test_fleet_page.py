"""The page of a fleet's episode: whole in itself, and with the figures of the account."""

from __future__ import annotations

import re
from html import escape

import numpy as np
import pytest

from llmserve_env.fleet.task import TASKS
from llmserve_env.fleet.timeline import FleetTimeline, play_timeline
from llmserve_env.planning.fleet_page import fleet_page, headline
from tests.fleet.small import random_decision, small_task, traffic_of


def timeline_of(name: str) -> FleetTimeline:
    task, rng = small_task(name, steps=130), np.random.default_rng(0)
    return play_timeline(task, traffic_of(task, 7), lambda _: random_decision(task, rng))


@pytest.mark.parametrize("name", TASKS)
def test_the_page_shows_replicas_traffic_promises_and_dollars_and_needs_nothing_else(name: str) -> None:
    timeline = timeline_of(name)
    text = fleet_page(timeline, "random", "a command")
    for part in ("replicas", "traffic", "promises", "dollars", "made"):
        assert f'<section id="{part}">' in text
    pools = timeline.task.pool_names
    assert all(f"Replicas of {pool}" in text for pool in pools) or len(pools) == 1
    assert not re.search(r'(?:src|href)="(?:https?:)?//', text)
    assert "<script" not in text
    assert escape(timeline.task.prices.source) in text


def test_the_timeline_agrees_with_the_account() -> None:
    timeline = timeline_of("elastic_fleet")
    figures = timeline.figures
    assert (np.diff(figures["bill_usd"]) >= 0).all()
    assert figures["attainment_so_far"][-1] == pytest.approx(figures["met"].sum() / figures["judged"].sum())
    assert timeline.replicas.shape == (130, 1, 5)
    assert (timeline.replicas.sum(axis=2) <= 4).all()
    net_usd = figures["income_usd"][-1] - figures["bill_usd"][-1] - figures["credits_usd"][-1]
    per_day = net_usd * 86_400 / timeline.task.length_s
    assert f"{'earns' if per_day >= 0 else 'loses'} {abs(per_day):,.0f} dollars per day" in headline(timeline, "random")
