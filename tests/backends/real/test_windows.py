"""The same timestamps give the same figures as in the simulator: its own decision log is played into a window book."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmserve_env.backends.real.windows import Served, WindowBook
from llmserve_env.engine.engine import Engine
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.engine.layout import ABANDONED, LOG_EMISSION, LOG_FINISH, REJECTED
from llmserve_env.tasks.catalog import load_task
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
            book.reject(q)
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


@pytest.mark.parametrize(("task_id", "batch_cap"), [("static_workload", 24), ("bursty_workload", 96)])
def test_the_figures_are_the_simulators(task_id: str, batch_cap: int) -> None:
    task = load_task(task_id)
    table = sample(task.workload, 5)
    engine, book = Engine(task.fleet, table, 5, log_rows=LOG_ROWS), WindowBook()
    taken = arrived = 0
    known: set[int] = set()
    for step in range(25):
        opened_ps, closed_ps = step * task.window_ps, (step + 1) * task.window_ps
        engine.serve(ServingKnobs(batch_cap=batch_cap), closed_ps)
        figures = engine.measure()[0]
        book.open(opened_ps)
        due = int(np.searchsorted(table.arrival_at_ps, closed_ps, side="right"))
        for q in range(arrived, due):
            prompt, priority = int(table.prompt_tokens[q]), int(table.priority[q])
            book.arrive(q, Served(int(table.arrival_at_ps[q]), prompt, priority, int(table.ttft_slo_ps[q])))
        rows = engine.state.log[taken : int(engine.state.environment[0]["log_count"])]
        arrived, taken = due, taken + len(rows)
        for event in sorted(happenings(rows) + lost(engine, known)):
            enter(book, *event)
        book.close(closed_ps)
        assert_equal(book, engine.state.window[0], figures)
    assert taken < LOG_ROWS
