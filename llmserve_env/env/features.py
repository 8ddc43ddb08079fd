"""The observation as a vector for RL: about forty numbers of order one, log-scaled where they span decades.

It contains no information about the future. `features_of` names the entries in order; the entries of knobs follow from
the table of knobs. The list in docs/environment.md is made from `features_of`.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import numpy as np

from llmserve_env.engine.kernels.compilation import entry_point, kernel
from llmserve_env.engine.knobs import Knob
from llmserve_env.env.kernels import dwell_left

WINDOW_FEATURES = (
    ("queue_depth", "log1p / 7"),
    ("active_requests", "log1p / 7"),
    ("kv_cache_occupancy", "fraction"),
    ("mean_prompt_tokens", "log2(x / 128) / 8"),
    ("ttft_p50_ms", "log1p / 9"),
    ("ttft_p99_ms", "log1p / 9"),
    ("itl_p50_ms", "log1p / 5"),
    ("throughput_tps", "log1p / 10"),
    ("slo_attainment", "fraction"),
    ("peak_memory", "fraction of the limit"),
    ("arrival_rate_rps", "log1p / 6"),
    ("window_rate_rps", "log1p / 6"),
    ("rate_trend", "log(window rate / moving average)"),
    ("surge_age", "windows since the last surge / 40, at most 1"),
    ("acceptance_rate", "fraction"),
    ("oldest_wait_ms", "log1p / 9"),
    ("busy_fraction", "busy GPU time / in-service GPU time"),
    ("preemptions", "log1p / 6"),
    ("rejected", "log1p / 6"),
    ("abandoned", "log1p / 6"),
    ("ooms", "log1p / 2"),
    ("class_share_0", "fraction of arrivals"),
    ("class_share_1", "fraction of arrivals"),
    ("class_share_2", "fraction of arrivals"),
    ("available_replicas", "fraction of the fleet"),
    ("tier_progress", "fraction of replicas on the chosen tier"),
    ("split", "0 off, 0.5 starting, 1 up"),
)
"""Numbers of the window, of the last windows and of the fleet: name and scale, in the order of the vector."""


def features_of(knobs: Sequence[Knob]) -> tuple[tuple[str, str], ...]:
    """Name and scale of every entry of the vector, for a task that offers these knobs."""
    values = tuple(entry for knob in knobs for entry in _value_features(knob))
    dwells = tuple(
        (f"{knob.short}_dwell_left", f"steps until the {knob.short} may change / 10")
        for knob in knobs
        if knob.is_costly
    )
    return (*WINDOW_FEATURES, *values, *dwells, ("progress", "step / episode length"))


def feature_scale(knob: Knob) -> float:
    """What the value of a knob, or its binary logarithm, is divided by."""
    return float(np.log2(knob.scale_high)) if knob.scale == "log" else float(knob.scale_high)


def _value_features(knob: Knob) -> tuple[tuple[str, str], ...]:
    if knob.kind == "tier":
        return tuple((f"{knob.feature}_is_{tier.lower()}", "flag") for tier in map(knob.wire, knob.levels))
    if knob.kind == "bool":
        return ((knob.feature, "flag"),)
    scale = feature_scale(knob)
    shown = "unscaled" if scale == 1.0 else f"/ {scale:g}"
    return ((knob.feature, f"log2 {shown}" if knob.scale == "log" else shown),)


NUM_WINDOW_FEATURES = len(WINDOW_FEATURES)
AT: Any = namedtuple("AT", [name for name, _ in WINDOW_FEATURES])(*range(NUM_WINDOW_FEATURES))
"""Index of each of `WINDOW_FEATURES` in the vector; kernels freeze it."""


@kernel
def scaled_log(value, scale):
    """log(1 + value) over a scale."""
    return np.log1p(value) / scale


@kernel
def encode_knobs(scoring, control, row, start):
    """Fill `row` from `start` with the offered knobs and how long the costly ones must still dwell; where it ends."""
    i = start
    for k in range(len(control.current)):
        if not scoring.is_offered[k]:
            continue
        value = control.current[k]
        for choice in range(scoring.num_choices[k]):
            row[i + choice] = 1.0 if value == scoring.choices[k, choice] else 0.0
        if scoring.num_choices[k] == 0:
            shown = np.log2(max(value, 1.0)) if scoring.is_log[k] else value
            row[i] = shown / scoring.feature_scale[k]
        i += max(scoring.num_choices[k], 1)
    for k in range(len(control.current)):
        if scoring.is_offered[k] and scoring.shows_dwell[k]:
            row[i] = dwell_left(scoring, control, k) / 10.0
            i += 1
    return i


@entry_point
def encode_features(scoring, control, window, metrics, num_steps, out):
    """Fill `out` [episodes, features] with the observation of every episode."""
    s = scoring[0]
    for e in range(out.shape[0]):
        m, w, c, row = metrics[e], window[e], control[e], out[e]
        row[AT.queue_depth] = scaled_log(m.queue_depth, 7.0)
        row[AT.active_requests] = scaled_log(m.active_requests, 7.0)
        row[AT.kv_cache_occupancy] = m.kv_cache_occupancy
        row[AT.mean_prompt_tokens] = np.log2(max(m.mean_prompt_tokens, 1.0) / 128.0) / 8.0
        row[AT.ttft_p50_ms] = scaled_log(m.ttft_p50_ms, 9.0)
        row[AT.ttft_p99_ms] = scaled_log(m.ttft_p99_ms, 9.0)
        row[AT.itl_p50_ms] = scaled_log(m.itl_p50_ms, 5.0)
        row[AT.throughput_tps] = scaled_log(m.throughput_tps, 10.0)
        row[AT.slo_attainment] = m.slo_attainment
        row[AT.peak_memory] = m.peak_memory_gb / s.memory_limit_gb
        row[AT.arrival_rate_rps] = scaled_log(m.arrival_rate_rps, 6.0)
        row[AT.window_rate_rps] = scaled_log(m.window_rate_rps, 6.0)
        row[AT.rate_trend] = np.log((m.window_rate_rps + 1.0) / (m.arrival_rate_rps + 1.0))
        row[AT.surge_age] = min(m.surge_age_windows / 40.0, 1.0)
        row[AT.acceptance_rate] = m.acceptance_rate
        row[AT.oldest_wait_ms] = scaled_log(m.oldest_wait_ms, 9.0)
        row[AT.busy_fraction] = m.busy_gpu_s / m.in_service_gpu_s if m.in_service_gpu_s > 0.0 else 0.0
        row[AT.preemptions] = scaled_log(float(w.preemptions), 6.0)
        row[AT.rejected] = scaled_log(float(w.rejected), 6.0)
        row[AT.abandoned] = scaled_log(float(w.abandoned), 6.0)
        row[AT.ooms] = scaled_log(float(w.ooms), 2.0)
        row[AT.class_share_0] = m.class_share[0]
        row[AT.class_share_1] = m.class_share[1]
        row[AT.class_share_2] = m.class_share[2]
        row[AT.available_replicas] = m.available_replicas / s.max_gpus
        row[AT.tier_progress] = m.tier_progress
        row[AT.split] = m.split
        end = encode_knobs(s, c, row, NUM_WINDOW_FEATURES)
        row[end] = c.step / num_steps
