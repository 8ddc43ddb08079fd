"""The cheapest fleet that keeps its promises: as brute force finds it, followed through on fresh traffic."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmserve_env.planning.answer.answer import Answer, seeds_text
from llmserve_env.planning.answer.protocol import Protocol
from llmserve_env.planning.answer.search import find_answer, smallest
from llmserve_env.planning.answer.store import answer_file, answer_for
from llmserve_env.planning.answer.text import answer_lines
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import Task
from tests.own_tasks import own_task, write_task

PROTOCOL = Protocol(num_search_seeds=3, num_fresh_seeds=4, max_replicas=6)


def busy_task(folder: Path, **changes: object) -> Task:
    fields = own_task(**changes)
    fields["workload"]["sources"][0]["arrivals"]["rate_rps"] = 30
    return load_task(write_task(folder, fields))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    return find_answer(busy_task(tmp_path_factory.mktemp("busy")), PROTOCOL)


def test_the_recommendation_is_the_cheapest_option_and_holds_on_fresh_seeds(found: Answer) -> None:
    best = found.recommended
    assert best is not None
    assert best.usd_per_hour == min(one.best.usd_per_hour for one in found.options if one.best)
    assert best.is_kept
    assert best.knobs["kv_budget_fraction"] == 1.0, "a GPU is paid for with all its memory"
    assert set(found.fresh_seeds).isdisjoint(found.search_seeds) or found.fresh_seeds != found.search_seeds


def test_a_fleet_that_is_too_small_is_called_so(found: Answer) -> None:
    assert not found.is_own_fleet_enough
    text = "\n".join(answer_lines(found))
    assert "DOES NOT keep every promise" in text
    assert "BROKEN on fresh traffic" in text
    assert found.fresh_seeds in text and found.search_seeds in text


def test_every_size_below_the_answer_was_refused(found: Answer) -> None:
    for option in found.options:
        assert option.replicas is not None
        assert [point.replicas for point in option.points if not point.is_sure] == [
            point.replicas for point in option.points if point.replicas < option.replicas
        ]


def test_an_answer_survives_its_file(found: Answer) -> None:
    assert Answer.model_validate_json(found.model_dump_json()) == found


def test_a_promise_no_fleet_keeps_has_no_recommendation_and_says_why(tmp_path: Path) -> None:
    fields = own_task()
    fields["workload"]["classes"][0]["ttft_slo_ms"] = 3
    answer = find_answer(load_task(write_task(tmp_path, fields)), PROTOCOL)
    assert answer.recommended is None
    assert "almost idle fleet" in answer.impossible[0] and "0.0%" not in answer.impossible[0]
    assert "no fleet can keep what even an idle one breaks" in "\n".join(answer_lines(answer))


def test_an_answer_is_stored_beside_the_task_and_used_again(tmp_path: Path) -> None:
    task = load_task(write_task(tmp_path, own_task(steps=6)))
    first = answer_for(task, PROTOCOL)
    path = answer_file(task)
    assert path is not None and path.is_file()
    written = path.stat().st_mtime_ns
    assert answer_for(task, PROTOCOL) == first
    assert path.stat().st_mtime_ns == written, "the stored answer was read, not found again"
    changed = load_task(write_task(tmp_path, own_task(steps=7)))
    answer_for(changed, PROTOCOL)
    assert path.stat().st_mtime_ns != written, "another content asks again"


def test_a_stated_price_decides_and_is_named(tmp_path: Path) -> None:
    fields = own_task(steps=6)
    fields["deployment"]["price_usd_per_hour"] = 7.5
    answer = find_answer(load_task(write_task(tmp_path, fields)), PROTOCOL)
    assert answer.own.usd_per_hour == 7.5
    assert answer.prices == ("a100-40gb 7.50 USD per hour: the task file",)


def test_several_gpus_are_compared_by_price(tmp_path: Path) -> None:
    profiles = ("a100-40gb.llama-3-8b", "h100-80gb.llama-3-8b")
    protocol = Protocol(num_search_seeds=2, num_fresh_seeds=2, max_replicas=4, profiles=profiles)
    answer = find_answer(load_task(write_task(tmp_path, own_task(steps=6))), protocol)
    assert {option.profile for option in answer.options} == set(profiles)
    assert answer.recommended is not None
    assert answer.recommended.gpu == "a100-40gb"
    assert len(answer.prices) == 2


def test_seeds_are_written_as_ranges() -> None:
    assert seeds_text((3, 4, 5, 9)) == "3..5, 9..9"


@given(first=st.integers(1, 40), limit=st.integers(1, 40), start=st.integers(0, 60))
def test_a_monotone_promise_is_found_from_any_start(first: int, limit: int, start: int) -> None:
    asked: set[int] = set()

    def keeps(count: int) -> bool:
        asked.add(count)
        return count >= first

    count, is_monotone = smallest(keeps, limit, start)
    assert is_monotone
    assert count == (first if first <= limit else None)
    assert all(1 <= one <= limit for one in asked)
    assert len(asked) <= 3 * limit.bit_length() + 3


@given(kept=st.lists(st.booleans(), min_size=1, max_size=24), start=st.integers(1, 24))
def test_where_a_contradiction_is_seen_every_smaller_count_is_tried(kept: list[bool], start: int) -> None:
    count, is_monotone = smallest(lambda size: kept[size - 1], len(kept), start)
    if count is None:
        assert not kept[-1]
    elif not is_monotone:
        assert count == kept.index(True) + 1
    else:
        assert kept[count - 1]
