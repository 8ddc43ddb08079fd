from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmserve_env.request_table import RequestTable
from llmserve_env.units import PS_PER_S
from llmserve_env.workloads import parse_workload, sample, schedule
from tests.workloads.specs import CHATS, data, workload

TWO_TURNS = {"turns": {"kind": "constant", "value": 2}, "think_s": {"kind": "constant", "value": 10.0}}


def by_session(table: RequestTable) -> list[RequestTable]:
    return [table.take(table.session_id == session) for session in np.unique(table.session_id)]


def test_each_turn_extends_all_that_was_said() -> None:
    table = sample(parse_workload(data(CHATS)), 1)
    sessions = by_session(table)
    assert max(map(len, sessions)) == 6
    for turns in sessions:
        new = turns.prompt_tokens[1:] - turns.prompt_tokens[:-1] - turns.output_tokens[:-1]
        assert np.all((new >= 5) & (new <= 60))
        assert np.all(np.diff(turns.arrival_at_ps) >= PS_PER_S - 10**6)
        assert len(np.unique(turns.prefix_id)) == 1
    assert set(table.prefix_id) == {0, 1, 2}
    assert set(table.prefix_tokens) == {512}
    assert table.prompt_tokens.min() >= 512 + 8


def test_user_tokens_default_to_the_law_of_prompts() -> None:
    table = sample(workload(sessions=TWO_TURNS), 0)
    assert set(table.prompt_tokens) == {100, 100 + 50 + 100}


def test_arrivals_of_a_session_source_are_session_starts() -> None:
    spec = workload({"kind": "poisson", "rate_rps": 10}, sessions=TWO_TURNS, horizon_s=1000)
    tables = [sample(spec, seed) for seed in range(5)]
    first_turns = np.mean([np.count_nonzero(table.prompt_tokens == 100) for table in tables])
    assert first_turns == pytest.approx(10_000, rel=0.02)
    assert np.mean(list(map(len, tables))) == pytest.approx(10_000 + 9_900, rel=0.02)


def test_sessions_end_when_the_context_is_full() -> None:
    sessions = {"turns": {"kind": "constant", "value": 9}, "think_s": {"kind": "constant", "value": 1.0}}
    table = sample(workload(sessions=sessions, max_total_tokens=520), 0)
    # Turns send 100, 250 and 400 tokens; the fourth would send 550.
    assert set(table.prompt_tokens) == {100, 250, 400}
    assert set(table.output_tokens) == {50}


def test_history_fills_the_start_of_the_episode() -> None:
    sessions = {"turns": {"kind": "constant", "value": 4}, "think_s": {"kind": "uniform", "low": 20.0, "high": 60.0}}
    cold, warm = (
        workload({"kind": "poisson", "rate_rps": 5}, sessions={**sessions, "history_s": history_s})
        for history_s in (0, 200)
    )
    early = [
        np.mean([np.count_nonzero(sample(spec, seed).arrival_at_ps < 20 * PS_PER_S) for seed in range(20)])
        for spec in (cold, warm)
    ]
    assert early == pytest.approx([5 * 20, 5 * 20 * 4], rel=0.08)


def test_prefixes_and_sessions_of_sources_are_distinct() -> None:
    description = data(CHATS)
    source = description["sources"][0]
    description["sources"] = [source, {**source, "tenant": "other"}]
    table = sample(parse_workload(description), 0)
    first, second = (table.take(table.tenant == tenant) for tenant in (0, 1))
    assert set(first.prefix_id) == {0, 1, 2}
    assert set(second.prefix_id) == {3, 4, 5}
    assert set(first.session_id).isdisjoint(second.session_id)


def test_without_a_shared_prefix_there_is_no_prefix_id() -> None:
    table = sample(workload(sessions=TWO_TURNS), 0)
    assert set(table.prefix_id) == {-1}
    assert set(table.prefix_tokens) == {0}


def test_turns_at_one_instant_keep_their_order() -> None:
    sessions = {"turns": {"kind": "constant", "value": 3}, "think_s": {"kind": "constant", "value": 0.0}}
    for turns in by_session(sample(workload(sessions=sessions), 0)):
        assert turns.prompt_tokens.tolist() == [100, 250, 400]


@pytest.mark.parametrize("history_s", [0, 150])
@pytest.mark.parametrize(
    "think_s",
    [{"kind": "constant", "value": 7.5}, {"kind": "lognormal", "mu": 2.5, "sigma": 0.7, "low": 1, "high": 120}],
    ids=["constant", "lognormal"],
)
def test_schedule_expects_later_turns(history_s: int, think_s: dict[str, Any]) -> None:
    arrivals = {"kind": "bursts", "base_rps": 2, "burst_rps": 20, "period_s": 100, "burst_s": 20}
    sessions = {"turns": {"kind": "uniform", "low": 1, "high": 5}, "think_s": think_s, "history_s": history_s}
    spec = workload(arrivals, sessions=sessions)
    seen = np.mean(
        [np.histogram(sample(spec, seed).arrival_at_ps / PS_PER_S, np.arange(0, 201, 10))[0] for seed in range(150)],
        axis=0,
    )
    expected = schedule(spec, 0).total_rps.reshape(20, 10).sum(axis=1)
    assert seen == pytest.approx(expected, rel=0.1)
