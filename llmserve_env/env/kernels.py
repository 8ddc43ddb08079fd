"""Compiled parts of a step outside the engine: holding knobs back, and scoring a window."""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.deployment import MAX_CLASSES
from llmserve_env.engine.kernels.compilation import entry_point, kernel
from llmserve_env.engine.layout import ITL_SUB_BINS, ITL_UNIT_SHIFT, NUM_TIERS
from llmserve_env.units import PS_PER_MS, S_PER_HOUR

NUM_KNOBS = 6
KV_BUDGET = 1
PPM = 1_000_000

SCORING_DTYPE = np.dtype(
    [
        ("weights", "f8", (5,)),
        ("class_weight", "f8", (MAX_CLASSES,)),
        ("quality", "f8", (MAX_CLASSES, NUM_TIERS)),
        ("itl_comfort_ms", "f8"),
        ("itl_limit_ms", "f8"),
        ("memory_limit_gb", "f8"),
        ("busy_share", "f8"),
        ("price_usd_per_hour", "f8"),
        ("idle_gpus", "f8"),
        ("max_gpus", "f8"),
        ("window_s", "f8"),
        ("is_active", "i8", (NUM_KNOBS,)),
        ("dwell_steps", "i8", (NUM_KNOBS,)),
    ]
)
"""A task's reward as numbers; knobs in the order of the action."""

MEMORY_DTYPE = np.dtype(
    [
        ("step", "i8"),
        ("turned_at", "i8", (NUM_KNOBS,)),
        ("current", "f8", (NUM_KNOBS,)),
        ("held", "i8", (NUM_KNOBS,)),
        ("cost_so_far_usd", "f8"),
        ("total_reward", "f8"),
    ]
)
"""What an episode remembers between steps besides the engine."""

TERMS_DTYPE = np.dtype(
    [
        ("throughput", "f8"),
        ("latency", "f8"),
        ("violations", "f8"),
        ("cost", "f8"),
        ("memory", "f8"),
        ("reward", "f8"),
        ("ttft", "f8"),
        ("itl", "f8"),
        ("slo", "f8"),
        ("cost_usd", "f8"),
        ("offered", "f8"),
    ]
)
"""Reward terms of a window, each in [0, 1], and what graders add up; `offered` is the weight of requests judged."""


@entry_point
def look_up_levels(indices, num_levels, levels, knobs):
    """Fill `knobs` with the level that each index names; False when one of them names none."""
    for e in range(indices.shape[0]):
        for k in range(NUM_KNOBS):
            if not 0 <= indices[e, k] < num_levels[k]:
                return False
            knobs[e, k] = levels[k, indices[e, k]]
    return True


@entry_point
def hold_knobs(scoring, memory, requested, knobs):
    """Turn requested knobs into those that apply: inactive ones keep their default, resting ones their value."""
    s = scoring[0]
    for e in range(requested.shape[0]):
        m = memory[e]
        for k in range(NUM_KNOBS):
            wants = requested[e, k]
            m.held[k] = 0
            if wants != m.current[k]:
                is_resting = m.turned_at[k] >= 0 and m.step - m.turned_at[k] < s.dwell_steps[k]
                if not s.is_active[k] or is_resting:
                    m.held[k] = 1
                else:
                    m.current[k] = wants
                    m.turned_at[k] = m.step
        knob = knobs[e]
        knob.batch_cap = int(m.current[0])
        knob.kv_budget_fraction = m.current[1]
        knob.speculation_depth = int(m.current[2])
        knob.quantization_tier = int(m.current[3])
        knob.prefill_decode_split = int(m.current[4])
        knob.priority_routing = int(m.current[5])


@kernel
def mean_gap_ms(window):
    """Mean time between tokens of a stream, from the middles of the histogram's bins; 0 without gaps."""
    if window.itl_samples == 0:
        return 0.0
    total = 0.0
    for i in range(window.itl_first, window.itl_last + 1):
        octave = max(i // ITL_SUB_BINS - 1, 0)
        total += window.itl[i] * ((i - octave * ITL_SUB_BINS) + 0.5) * (1 << octave)
    return total / window.itl_samples * (1 << ITL_UNIT_SHIFT) / PS_PER_MS


@kernel
def count_served(scoring, window, out):
    """Shares of the requests judged in this window, weighted by class."""
    judged, met, good, wait = 0.0, 0.0, 0.0, 0.0
    for k in range(MAX_CLASSES):
        judged += scoring.class_weight[k] * window.judged_by_class[k]
        wait += scoring.class_weight[k] * window.wait_ppm_by_class[k] / PPM
        for t in range(NUM_TIERS):
            count = scoring.class_weight[k] * window.met_by_class_tier[k * NUM_TIERS + t]
            met += count
            good += count * scoring.quality[k, t]
    out.offered = judged
    out.slo = met / judged if judged > 0.0 else 1.0
    out.throughput = good / judged if judged > 0.0 else 1.0
    out.ttft = wait / judged if judged > 0.0 else 0.0
    out.violations = 1.0 - out.slo


@kernel
def bill(scoring, metrics, out):
    """What a platform would charge for the window, and where that lies between an idle and a full fleet."""
    s = scoring
    gpus = s.busy_share * metrics.busy_gpu_s + (1.0 - s.busy_share) * metrics.reserved_gb_s / s.memory_limit_gb
    out.cost_usd = s.price_usd_per_hour / S_PER_HOUR * gpus
    out.cost = min(max((gpus / s.window_s - s.idle_gpus) / (s.max_gpus - s.idle_gpus), 0.0), 1.0)


@entry_point
def score_windows(scoring, memory, window, metrics, terms):
    """Reward terms of the window just measured; docs/metrics.md has the formulas."""
    s = scoring[0]
    for e in range(window.shape[0]):
        w, m, out, mem = window[e], metrics[e], terms[e], memory[e]
        count_served(s, w, out)
        slowness = (mean_gap_ms(w) - s.itl_comfort_ms) / (s.itl_limit_ms - s.itl_comfort_ms)
        # A request that missed its SLO counts as the slowest stream: nothing served must not look smooth.
        out.itl = 1.0 - out.slo * (1.0 - min(max(slowness, 0.0), 1.0))
        out.latency = 0.5 * (out.ttft + out.itl)
        bill(s, m, out)
        thrash = w.preemptions / max(m.active_requests + m.queue_depth, 1.0)
        out.memory = 1.0 if w.ooms > 0 else min(max(mem.current[KV_BUDGET], thrash), 1.0)
        reward = s.weights[0] * out.throughput - s.weights[1] * out.latency - s.weights[2] * out.violations
        reward -= s.weights[3] * out.cost + s.weights[4] * out.memory
        out.reward = min(max(reward, -1.0), 1.0)
        mem.step += 1
        mem.cost_so_far_usd += out.cost_usd
        mem.total_reward += out.reward
