"""From timestamps to the simulator's records: the definitions of docs/metrics.md, for requests that were really served.

Given the same timestamps this and the simulator give the same figures; a test holds them to it.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmserve_env.engine.kernels.measure import SLOW_SMOOTHING, SMOOTHING, SURGE_RATIO
from llmserve_env.engine.kernels.recording import PPM
from llmserve_env.engine.layout import (
    ITL_BINS,
    ITL_SUB_BINS,
    ITL_UNIT_SHIFT,
    NUM_TIERS,
    RECENT_WINDOWS,
    TTFT_RING,
    WINDOW_DTYPE,
)
from llmserve_env.engine.metrics import METRICS_DTYPE
from llmserve_env.engine.state import records
from llmserve_env.units import PS_PER_MS, PS_PER_S


@dataclass(slots=True)
class Served:
    """A request's life so far, in picoseconds of the episode."""

    arrival_at_ps: int
    prompt_tokens: int
    priority: int
    slo_ps: int
    emitted: int = 0
    first_token_at_ps: int = -1
    last_token_at_ps: int = -1
    finished_at_ps: int = -1
    is_judged: bool = False
    is_over: bool = False
    """Finished, failed or given up."""


class WindowBook:
    """Counts what happens to requests, window by window."""

    def __init__(self, tier: int = 0) -> None:
        self._tier = tier
        self.requests: dict[int, Served] = {}
        self.window = records((1,), WINDOW_DTYPE)
        self.metrics = records((1,), METRICS_DTYPE)
        self._unjudged: dict[int, Served] = {}
        self._waits: deque[tuple[int, int]] = deque(maxlen=TTFT_RING)
        self._recent: deque[tuple[int, int]] = deque(maxlen=RECENT_WINDOWS)
        self._num_windows = 0
        self._rate_rps = self._usual_rps = self._mean_prompt_tokens = 0.0
        self._surge_age = 0

    def open(self, at_ps: int) -> None:
        """Start counting from zero."""
        self.window[:] = np.zeros(1, WINDOW_DTYPE)
        self.window["opened_at_ps"] = at_ps
        self.window["itl_first"] = ITL_BINS - 1

    def arrive(self, index: int, request: Served) -> None:
        """A client sends a request."""
        window = self.window[0]
        window["arrived"] += 1
        window["arrived_prompt_tokens"] += request.prompt_tokens
        window["arrived_by_class"][request.priority] += 1
        self.requests[index] = self._unjudged[index] = request

    def tokens(self, index: int, at_ps: int, count: int) -> None:
        """Tokens that reach the client together."""
        request, window = self.requests[index], self.window[0]
        window["output_tokens"] += count
        request.emitted += count
        if request.first_token_at_ps < 0:
            request.first_token_at_ps = at_ps
            wait = at_ps - request.arrival_at_ps
            self._waits.append((at_ps, wait))
            self._judge(index, wait <= request.slo_ps, int(min(wait / request.slo_ps, 1.0) * PPM))
        else:
            self._count_gaps((at_ps - request.last_token_at_ps) // count, count)
        request.last_token_at_ps = at_ps

    def _count_gaps(self, gap_ps: int, count: int) -> None:
        window, i = self.window[0], gap_bin(gap_ps)
        window["itl"][i] += count
        window["itl_samples"] += count
        window["itl_first"], window["itl_last"] = min(window["itl_first"], i), max(window["itl_last"], i)

    def finish(self, index: int, at_ps: int) -> None:
        """A request has all its tokens."""
        request, window = self.requests[index], self.window[0]
        request.finished_at_ps, request.is_over = at_ps, True
        cell = request.priority * NUM_TIERS + self._tier
        window["finished"] += 1
        window["finished_by_class_tier"][cell] += 1
        window["finished_tokens_by_class_tier"][cell] += request.emitted
        if request.emitted > 1:
            window["tpot_sum_ps"] += (request.last_token_at_ps - request.first_token_at_ps) // (request.emitted - 1)
            window["tpot_requests"] += 1

    def reject(self, index: int) -> None:
        """Turned away, or failed: a broken promise unless its first token had come."""
        self.window[0]["rejected"] += 1
        self.requests[index].is_over = True
        self._judge(index, False, PPM)

    def abandon(self, index: int, at_ps: int) -> None:
        """The client has gone without a first token."""
        request = self.requests[index]
        self.window[0]["abandoned"] += 1
        request.is_over = True
        self._waits.append((at_ps, at_ps - request.arrival_at_ps))
        self._judge(index, False, PPM)

    def close(self, now_ps: int) -> None:
        """Judge deadlines that passed unserved, and compute the metrics of the window; gauges are the caller's."""
        for index, request in list(self._unjudged.items()):
            if request.arrival_at_ps + request.slo_ps < now_ps:
                self._judge(index, False, PPM)
        window, out = self.window[0], self.metrics[0]
        length_ps = max(now_ps - int(window["opened_at_ps"]), 1)
        length_s = length_ps / PS_PER_S
        window["in_service_ps"] = length_ps
        self._update_recent(length_s)
        out["arrival_rate_rps"], out["window_rate_rps"] = self._rate_rps, window["arrived"] / length_s
        out["surge_age_windows"], out["mean_prompt_tokens"] = self._surge_age, self._mean_prompt_tokens
        out["throughput_tps"] = window["output_tokens"] / length_s
        judged, met = (sum(column) for column in zip(*self._recent, strict=True))
        out["slo_attainment"] = met / judged if judged else 1.0
        out["itl_p50_ms"] = gap_quantile_ps(window, 0.5) / PS_PER_MS
        out["class_share"] = window["arrived_by_class"] / max(int(window["arrived"]), 1)
        self._measure_waits(now_ps, length_ps)

    def _measure_waits(self, now_ps: int, length_ps: int) -> None:
        out = self.metrics[0]
        waiting = [r.arrival_at_ps for r in self.requests.values() if not r.is_over and r.first_token_at_ps < 0]
        oldest_ms = (now_ps - min(waiting, default=now_ps)) / PS_PER_MS
        since = now_ps - RECENT_WINDOWS * length_ps
        waits = sorted(wait for at_ps, wait in self._waits if at_ps > since)
        n = len(waits)
        out["oldest_wait_ms"] = oldest_ms
        out["ttft_p50_ms"] = waits[(n + 1) // 2 - 1] / PS_PER_MS if n else oldest_ms
        late_ms = waits[(99 * n + 99) // 100 - 1] / PS_PER_MS if n else 0.0
        out["ttft_p99_ms"] = max(late_ms, oldest_ms)

    def _judge(self, index: int, met: bool, wait_ppm: int) -> None:
        request = self.requests[index]
        if request.is_judged:
            return
        request.is_judged = True
        del self._unjudged[index]
        window, k = self.window[0], request.priority
        window["judged_by_class"][k] += 1
        window["wait_ppm_by_class"][k] += wait_ppm
        if met:
            window["met_by_class_tier"][k * NUM_TIERS + self._tier] += 1

    def _update_recent(self, length_s: float) -> None:
        window, is_first = self.window[0], self._num_windows == 0
        rate = float(window["arrived"]) / length_s
        self._rate_rps = rate if is_first else self._rate_rps + SMOOTHING * (rate - self._rate_rps)
        self._usual_rps = rate if is_first else self._usual_rps + SLOW_SMOOTHING * (rate - self._usual_rps)
        self._surge_age = 0 if rate > SURGE_RATIO * self._usual_rps else self._surge_age + 1
        if window["arrived"]:
            prompt = float(window["arrived_prompt_tokens"]) / float(window["arrived"])
            mean = self._mean_prompt_tokens
            self._mean_prompt_tokens = prompt if mean == 0.0 else mean + SMOOTHING * (prompt - mean)
        self._recent.append((int(window["judged_by_class"].sum()), int(window["met_by_class_tier"].sum())))
        self._num_windows += 1


def gap_bin(gap_ps: int) -> int:
    """Log-linear bin of an inter-token gap; the kernel of that name is for compiled callers only."""
    value = gap_ps >> ITL_UNIT_SHIFT
    octave = max(value.bit_length() - (2 * ITL_SUB_BINS).bit_length() + 1, 0)
    return min(octave * ITL_SUB_BINS + (value >> octave), ITL_BINS - 1)


def gap_quantile_ps(window: Any, fraction: float) -> float:
    """Middle of the bin that holds this quantile of inter-token gaps; 0 without gaps."""
    samples = int(window["itl_samples"])
    if samples == 0:
        return 0.0
    found = int(np.searchsorted(np.cumsum(window["itl"]), math.ceil(fraction * samples)))
    index = min(found, ITL_BINS - 1)
    octave = max(index // ITL_SUB_BINS - 1, 0)
    low = (index - octave * ITL_SUB_BINS) << octave
    return float(low + 0.5 * (1 << octave)) * (1 << ITL_UNIT_SHIFT)
