"""The same timestamps give the same figures as in the simulator: its decision log is entered into a window book."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmserve_env.backends.accounting import WindowBook
from llmserve_env.engine.engine import Engine
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.engine.layout import ABANDONED, REJECTED
from llmserve_env.engine.log_layout import LOG_EMISSION, LOG_FINISH
from llmserve_env.tasks.catalog import load_task
from llmserve_env.units import PS_PER_MS, PS_PER_S
from llmserve_env.workloads import sample

COUNTERS = ("arrived", "arrived_prompt_tokens", "finished", "rejected", "abandoned", "output_tokens", "itl_samples")
BY_CLASS = ("arrived_by_class", "judged_by_class", "wait_ppm_by_class", "met_by_class_tier", "itl")
FIGURES = (
    "arrival_rate_rps",
    "window_rate_rps",
    "surge_age_windows",
    "mean_prompt_tokens",
    "throughput_tps",
    "slo_attainment",
    "itl_p50_ms",
    "ttft_p50_ms",
)
LOG_ROWS = 400_000


def happenings(rows: Any) -> list[tuple[int, int, str, int]]:
    """(time, request, what, tokens) of the log's rows and of requests that were lost."""
    found = [
        (int(row["at_ps"]), int(row["request"]), "tokens", int(row["tokens"]))
        for row in rows
        if row["kind"] == LOG_EMISSION
    ]
    found += [(int(row["at_ps"]), int(row["request"]), "finish", 0) for row in rows if row["kind"] == LOG_FINISH]
    return found


def lost(engine: Engine, known: set[int]) -> list[tuple[int, int, str, int]]:
    """Requests turned away or given up since the last window; some a little before it, in a long iteration."""
    progress = engine.request_records()
    found = []
    for status, what in ((REJECTED, "reject"), (ABANDONED, "abandon")):
        which = [int(q) for q in np.flatnonzero(progress["status"] == status) if int(q) not in known]
        known.update(which)
        found += [(int(progress["finished_at_ps"][q]), q, what, 0) for q in which]
    return found


def enter(book: WindowBook, at_ps: int, q: int, what: str, tokens: int) -> None:
    match what:
        case "tokens":
            book.tokens(q, at_ps, tokens)
        case "finish":
            book.finish(q, at_ps)
        case "reject":
            book.reject(q, at_ps)
        case "abandon":
            book.abandon(q, at_ps)


def assert_equal(book: WindowBook, counted: Any, figures: Any) -> None:
    for name in COUNTERS:
        assert int(book.window[0][name]) == int(counted[name]), name
    for name in BY_CLASS:
        assert book.window[0][name].tolist() == counted[name].tolist(), name
    for name in FIGURES:
        assert float(book.metrics[0][name]) == pytest.approx(float(figures[name]), rel=1e-12), name
    # A client cannot tell a request that waits from one whose prompt is being read.
    ours, theirs = book.metrics[0], figures
    assert ours["oldest_wait_ms"] >= theirs["oldest_wait_ms"]
    if ours["oldest_wait_ms"] == theirs["oldest_wait_ms"]:
        assert ours["ttft_p99_ms"] == pytest.approx(float(theirs["ttft_p99_ms"]), rel=1e-12)


# Without a host: its front end would let the engine see a request later than the client sent it.
@pytest.mark.parametrize(("task_id", "batch_cap"), [("static_workload-v1", 24), ("bursty_workload-v1", 96)])
def test_the_figures_are_the_simulators(task_id: str, batch_cap: int) -> None:
    task = load_task(task_id)
    table = sample(task.workload, 5)
    engine, book = Engine(task.fleet, table, 5, log_rows=LOG_ROWS), WindowBook(task.fleet)
    book.reset(len(table))
    taken = arrived = 0
    known: set[int] = set()
    for step in range(25):
        closed_ps = (step + 1) * task.window_ps
        engine.serve(ServingKnobs(batch_cap=batch_cap), closed_ps)
        figures = engine.measure()[0]
        due = int(np.searchsorted(table.arrival_at_ps, closed_ps, side="right"))
        new = slice(arrived, due)
        book.arrive(table.arrival_at_ps[new], table.prompt_tokens[new], table.priority[new], table.ttft_slo_ps[new])
        rows = engine.state.log[taken : int(engine.state.environment[0]["log_count"])]
        arrived, taken = due, taken + len(rows)
        for event in sorted(happenings(rows) + lost(engine, known)):
            enter(book, *event)
        book.close_window(closed_ps)
        assert_equal(book, engine.state.window[0], figures)
    assert taken < LOG_ROWS


def book_of_two() -> WindowBook:
    """Two requests that arrive at 0 and 100 ms, with an SLO of 500 ms."""
    book = WindowBook(load_task("static_workload").fleet)
    book.reset(2)
    assert book.arrive([0, 100 * PS_PER_MS], 50, 0, 500 * PS_PER_MS).tolist() == [0, 1]
    return book


def test_a_request_is_judged_once_however_it_ends() -> None:
    book = book_of_two()
    book.close_window(PS_PER_S)
    assert (book.window[0]["judged_by_class"][0], book.window[0]["met_by_class_tier"].sum()) == (2, 0)
    assert book.metrics[0]["oldest_wait_ms"] == 1000.0
    book.tokens(0, PS_PER_S + 1, 1)
    book.finish(0, PS_PER_S + 2)
    book.reject(1, PS_PER_S + 3)
    book.close_window(2 * PS_PER_S)
    assert (book.window[0]["judged_by_class"][0], book.window[0]["rejected"], book.window[0]["finished"]) == (0, 1, 1)
    assert book.metrics[0]["oldest_wait_ms"] == 0.0


def test_tokens_that_arrive_together_share_their_gap_and_a_request_ends_with_its_last_token() -> None:
    book = book_of_two()
    for at_ms, count in ((200, 1), (260, 3)):
        book.tokens(0, at_ms * PS_PER_MS, count)
    book.finish(0, 300 * PS_PER_MS)
    book.close_window(PS_PER_S)
    window, progress = book.window[0], book.progress[0]
    assert (window["output_tokens"], window["itl_samples"], window["tpot_sum_ps"]) == (4, 3, 20 * PS_PER_MS)
    assert book.metrics[0]["itl_p50_ms"] == pytest.approx(20.0, rel=0.01)
    assert progress["finished_at_ps"] == progress["last_token_at_ps"] == 260 * PS_PER_MS


def test_the_wait_of_a_client_that_leaves_counts_and_is_missed() -> None:
    book = book_of_two()
    book.tokens(0, 40 * PS_PER_MS, 1)
    book.abandon(1, 400 * PS_PER_MS)
    book.close_window(PS_PER_S, tier=2, counts={"preemptions": 3}, gauges={"queue_depth": 7.0})
    assert book.window[0]["met_by_class_tier"].tolist()[:3] == [0, 0, 1]
    assert (book.metrics[0]["ttft_p50_ms"], book.metrics[0]["ttft_p99_ms"]) == (40.0, 300.0)
    assert (book.window[0]["abandoned"], book.window[0]["preemptions"]) == (1, 3)
    assert (book.metrics[0]["slo_attainment"], book.metrics[0]["queue_depth"]) == (0.5, 7.0)


def test_more_requests_than_there_is_room_for_are_refused() -> None:
    with pytest.raises(ValueError, match="room for 2 requests"):
        book_of_two().arrive([200 * PS_PER_MS], 50, 0, PS_PER_S)
