"""The observation as a vector for RL: about forty numbers of order one, log-scaled where they span decades.

Nothing in it looks ahead. `FEATURES` names the entries in order; docs/environment.md is made from it.
"""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.kernels.compilation import entry_point, kernel

FEATURES = (
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
    ("rate_trend", "log of window rate over its average"),
    ("surge_age", "windows since the last surge / 40, at most 1"),
    ("acceptance_rate", "fraction"),
    ("oldest_wait_ms", "log1p / 9"),
    ("busy_fraction", "busy over in-service GPU time"),
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
    ("batch_cap", "log2 / 9"),
    ("kv_budget_fraction", "as is"),
    ("speculation_depth", "/ 8"),
    ("tier_is_fp16", "flag"),
    ("tier_is_int8", "flag"),
    ("tier_is_int4", "flag"),
    ("split_is_on", "flag"),
    ("priority_routing", "flag"),
    ("tier_rest", "steps until the tier may change / 10"),
    ("split_rest", "steps until the split may change / 10"),
    ("progress", "step / episode length"),
)
NUM_FEATURES = len(FEATURES)
TIER, SPLIT = 3, 4


@kernel
def scaled_log(value, scale):
    """log(1 + value) over a scale."""
    return np.log1p(value) / scale


@kernel
def rest_steps(scoring, memory, knob):
    """Steps until a resting knob may turn again, in tenths."""
    if memory.turned_at[knob] < 0:
        return 0.0
    return max(scoring.dwell_steps[knob] - (memory.step - memory.turned_at[knob]), 0) / 10.0


@entry_point
def encode_features(scoring, memory, window, metrics, num_steps, out):
    """Fill `out` [episodes, NUM_FEATURES] with the observation of every episode."""
    s = scoring[0]
    for e in range(out.shape[0]):
        m, w, mem, row = metrics[e], window[e], memory[e], out[e]
        row[0] = scaled_log(m.queue_depth, 7.0)
        row[1] = scaled_log(m.active_requests, 7.0)
        row[2] = m.kv_cache_occupancy
        row[3] = np.log2(max(m.mean_prompt_tokens, 1.0) / 128.0) / 8.0
        row[4] = scaled_log(m.ttft_p50_ms, 9.0)
        row[5] = scaled_log(m.ttft_p99_ms, 9.0)
        row[6] = scaled_log(m.itl_p50_ms, 5.0)
        row[7] = scaled_log(m.throughput_tps, 10.0)
        row[8] = m.slo_attainment
        row[9] = m.peak_memory_gb / s.memory_limit_gb
        row[10] = scaled_log(m.arrival_rate_rps, 6.0)
        row[11] = scaled_log(m.window_rate_rps, 6.0)
        row[12] = np.log((m.window_rate_rps + 1.0) / (m.arrival_rate_rps + 1.0))
        row[13] = min(m.surge_age_windows / 40.0, 1.0)
        row[14] = m.acceptance_rate
        row[15] = scaled_log(m.oldest_wait_ms, 9.0)
        row[16] = m.busy_gpu_s / m.in_service_gpu_s if m.in_service_gpu_s > 0.0 else 0.0
        row[17] = scaled_log(float(w.preemptions), 6.0)
        row[18] = scaled_log(float(w.rejected), 6.0)
        row[19] = scaled_log(float(w.abandoned), 6.0)
        row[20] = scaled_log(float(w.ooms), 2.0)
        for k in range(3):
            row[21 + k] = m.class_share[k]
        row[24] = m.available_replicas / s.max_gpus
        row[25] = m.tier_progress
        row[26] = m.split
        row[27] = np.log2(max(mem.current[0], 1.0)) / 9.0
        row[28] = mem.current[1]
        row[29] = mem.current[2] / 8.0
        for t in range(3):
            row[30 + t] = 1.0 if mem.current[TIER] == t else 0.0
        row[33] = mem.current[SPLIT]
        row[34] = mem.current[5]
        row[35] = rest_steps(s, mem, TIER)
        row[36] = rest_steps(s, mem, SPLIT)
        row[37] = mem.step / num_steps
