"""What vLLM's `/metrics` say about a window: counters and histograms, taken as differences of two scrapes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from llmserve_env.backends.real.prometheus import read_totals
from llmserve_env.errors import ProviderError

_BUCKET = re.compile(r'^(vllm:[a-z0-9_]+)_bucket\{[^}]*le="([^"]+)"[^}]*\} ([-+0-9.eE]+)$', re.MULTILINE)
TTFT, GAP = "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"
REQUIRED = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:num_preemptions_total",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    f"{TTFT}_count",
    f"{TTFT}_sum",
)
Histogram = tuple[tuple[float, ...], tuple[float, ...]]
"""(upper edges in seconds, cumulative counts)."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """One look at the metrics."""

    at_s: float
    totals: Mapping[str, float]
    histograms: Mapping[str, Histogram]


def parse_scrape(text: str, at_s: float) -> Scrape:
    """Read a page of metrics; ProviderError names what is missing."""
    totals = read_totals(text)
    missing = [name for name in REQUIRED if name not in totals]
    if missing:
        raise ProviderError(
            f"the metrics lack {', '.join(missing)}: is this a vLLM that has served nothing, or another?"
        )
    found: dict[str, dict[float, float]] = {TTFT: {}, GAP: {}}
    for name, edge, count in _BUCKET.findall(text):
        if name in found:
            at = float(edge)
            found[name][at] = found[name].get(at, 0.0) + float(count)
    histograms = {
        name: (tuple(sorted(rows)), tuple(rows[edge] for edge in sorted(rows))) for name, rows in found.items()
    }
    return Scrape(at_s, totals, histograms)


@dataclass(frozen=True, slots=True)
class Reading:
    """A window as the engine reports it."""

    started_at_s: float
    ended_at_s: float
    arrived: int
    first_tokens: int
    prompt_tokens: int
    output_tokens: int
    preemptions: int
    queue_depth: int
    active_requests: int
    kv_cache_occupancy: float
    busy_share: float
    ttft_s: tuple[float, ...]
    """First waits of the window, as evenly spaced quantiles of the histogram."""
    gap_s: tuple[float, ...]
    """Times between tokens, likewise."""

    @property
    def length_s(self) -> float:
        return self.ended_at_s - self.started_at_s

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Reading:
        """The reading that `as_json` wrote."""
        return cls(**{**row, "ttft_s": tuple(row["ttft_s"]), "gap_s": tuple(row["gap_s"])})

    def as_json(self) -> dict[str, Any]:
        """Plain data, rounded to microseconds."""
        shown = asdict(self)
        shown["ttft_s"], shown["gap_s"] = ([round(x, 6) for x in values] for values in (self.ttft_s, self.gap_s))
        return shown


MAX_QUANTILES = 64


def read_window(before: Scrape, after: Scrape, busy_share: float) -> Reading:
    """The window between two scrapes; ProviderError if the engine was restarted between them."""

    def grown(name: str) -> int:
        difference = after.totals[name] - before.totals[name]
        if difference < 0:
            raise ProviderError(f"{name} has fallen from {before.totals[name]:g} to {after.totals[name]:g}: a restart")
        return round(difference)

    inside = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    first_tokens = grown(f"{TTFT}_count")
    waiting = [sum(scrape.totals[name] for name in inside[1:]) for scrape in (before, after)]
    return Reading(
        started_at_s=before.at_s,
        ended_at_s=after.at_s,
        # A request that arrived either has a first token by now or is waiting.
        arrived=max(first_tokens + round(waiting[1] - waiting[0]), 0),
        first_tokens=first_tokens,
        prompt_tokens=grown("vllm:prompt_tokens_total"),
        output_tokens=grown("vllm:generation_tokens_total"),
        preemptions=grown("vllm:num_preemptions_total"),
        queue_depth=round(after.totals[inside[1]]),
        active_requests=round(after.totals[inside[0]]),
        kv_cache_occupancy=min(max(after.totals["vllm:kv_cache_usage_perc"], 0.0), 1.0),
        busy_share=min(max(busy_share, 0.0), 1.0),
        ttft_s=_quantiles(before.histograms[TTFT], after.histograms[TTFT]),
        gap_s=_quantiles(before.histograms[GAP], after.histograms[GAP]),
    )


def _quantiles(before: Histogram, after: Histogram) -> tuple[float, ...]:
    """Evenly spaced quantiles of what was added between two histograms, linear within a bucket."""
    edges = np.array(after[0])
    added = np.array(after[1]) - (np.array(before[1]) if before[0] == after[0] else 0.0)
    count = int(added[-1]) if len(added) else 0
    if count <= 0:
        return ()
    # What lies beyond the last edge is given that edge.
    finite = np.isfinite(edges)
    uppers = np.where(finite, edges, edges[finite][-1] if finite.any() else 0.0)
    points = (np.arange(min(count, MAX_QUANTILES)) + 0.5) / min(count, MAX_QUANTILES) * count
    return tuple(np.interp(points, np.concatenate([[0.0], added]), np.concatenate([[0.0], uppers])).tolist())
