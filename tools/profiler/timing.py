"""Time CUDA graph replays, which exclude Python's launch gaps, as in serving engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from statistics import median
from typing import TypeVar

import torch

WARM_UP_REPLAYS = 2
MIN_REPLAYS = 7
MAX_REPLAYS = 40
CHOICE_REPLAYS = 5

Kernel = TypeVar("Kernel")


def capture(run: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Record one call of `run`, after two calls that let lazy initialisation happen."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def replay_ms(graph: torch.cuda.CUDAGraph, replays: int) -> list[float]:
    """Milliseconds of each replay, timed one by one with device events."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
    marks[0].record()
    for mark in marks[1:]:
        graph.replay()
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in pairwise(marks)]


def time_iteration(run: Callable[[], object], budget_ms: float) -> list[float]:
    """Times of as many replays as fit the budget, within limits, after a warm-up."""
    graph = capture(run)
    first = replay_ms(graph, WARM_UP_REPLAYS)
    replays = min(MAX_REPLAYS, max(MIN_REPLAYS, int(budget_ms / max(first[-1], 1e-3))))
    times = replay_ms(graph, replays)
    graph.reset()
    return times


def fastest(candidates: Mapping[str, Kernel], run: Callable[[Kernel], object]) -> tuple[str, dict[str, float]]:
    """The fastest candidate, and the milliseconds of every candidate."""
    times: dict[str, float] = {}
    for name, kernel in candidates.items():
        graph = capture(partial(run, kernel))
        replay_ms(graph, 1)
        times[name] = median(replay_ms(graph, CHOICE_REPLAYS))
        graph.reset()
    return min(times, key=lambda name: times[name]), times
