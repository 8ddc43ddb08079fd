"""The engine against itself: the same policy on the same requests, recorded on two days.

No simulator can be closer to an engine than the engine is to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.markdown import markdown_table
from llmserve_env.errors import ConfigError
from tools.card_experiment.records import Record

SETTLING_S = 3.0
"""Requests of the last seconds of the shorter episode are left out: it may not have served them to their end."""


@dataclass(frozen=True, slots=True)
class Day:
    """An episode's figures up to the end of the shorter one."""

    reward: float
    ttft_mean_ms: float
    tpot_mean_ms: float


def day_of(record: Record, windows: int, window_s: float) -> Day:
    """Figures of the first windows."""
    requests = record.requests
    chosen = requests.arrival_s < windows * window_s - SETTLING_S
    return Day(
        float(record.windows["reward"][:windows].mean()),
        float(np.nanmean(requests.ttft_ms[chosen])),
        float(np.nanmean(requests.tpot_ms[chosen])),
    )


def pairs_of(first: Sequence[Record], again: Sequence[Record], window_s: float) -> dict[tuple[str, int], list[Day]]:
    """Both days of every policy and seed that both folders hold."""
    sides = [{record.key: record for record in records} for records in (first, again)]
    common = sorted(set(sides[0]) & set(sides[1]))
    if not common:
        raise ConfigError("the two folders have no policy and seed in common, so there is nothing to compare")
    found = {}
    for key in common:
        both = [side[key] for side in sides]
        windows = min(len(record.windows["reward"]) for record in both)
        _check_same_requests(both, windows * window_s)
        found[key] = [day_of(record, windows, window_s) for record in both]
    return found


def _check_same_requests(both: Sequence[Record], until_s: float) -> None:
    one, other = (r.requests.prompt_tokens[r.requests.arrival_s < until_s - SETTLING_S] for r in both)
    # An arrival is the moment of sending, so a request at the very end may fall on either side.
    shorter = min(len(one), len(other))
    if abs(len(one) - len(other)) > 1 or not np.array_equal(one[:shorter], other[:shorter]):
        raise ConfigError(f"{both[0].key[0]} on seed {both[0].key[1]} was not played on the same requests")


def as_markdown(first: Sequence[Record], again: Sequence[Record], window_s: float) -> str:
    """A row per policy and seed: first day / second day, and how far they are apart."""
    rows, ttft, tpot = [], [], []
    for (policy, seed), (one, other) in pairs_of(first, again, window_s).items():
        ttft.append(other.ttft_mean_ms / one.ttft_mean_ms - 1.0)
        tpot.append(other.tpot_mean_ms / one.tpot_mean_ms - 1.0)
        rows.append(
            (
                policy,
                str(seed),
                f"{one.reward:.3f} / {other.reward:.3f}",
                f"{one.ttft_mean_ms:.0f} / {other.ttft_mean_ms:.0f} ({ttft[-1]:+.0%})",
                f"{one.tpot_mean_ms:.1f} / {other.tpot_mean_ms:.1f} ({tpot[-1]:+.0%})",
            )
        )
    table = markdown_table(["policy", "seed", "reward", "TTFT mean, ms", "TPOT mean, ms"], rows)
    middle = [f"{np.median(np.abs(values)):.0%}" for values in (ttft, tpot)]
    return f"{table}\n\nMedian difference of the engine from itself: mean TTFT {middle[0]}, mean TPOT {middle[1]}."
