"""Compiled parts of a step outside the engine: holding knobs back, and scoring a window."""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.deployment import MAX_CLASSES
from llmserve_env.engine.kernels.borrow import borrow
from llmserve_env.engine.kernels.compilation import entry_point
from llmserve_env.engine.layout import NUM_TIERS
from llmserve_env.units import S_PER_HOUR

NUM_KNOBS = 6
PPM = 1_000_000

SCORING_DTYPE = np.dtype(
    [
        ("weights", "f8", (5,)),
        ("class_weight", "f8", (MAX_CLASSES,)),
        ("quality", "f8", (MAX_CLASSES, NUM_TIERS)),
        ("itl_target_ms", "f8"),
        ("memory_limit_gb", "f8"),
        ("busy_share", "f8"),
        ("price_usd_per_hour", "f8"),
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
def hold_knobs(scoring, memory, requested, knobs):
    """Turn requested knobs into those that apply: inactive ones keep their default, resting ones their value."""
    s = borrow(scoring)[0]
    for e in range(requested.shape[0]):
        m = borrow(memory)[e]
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
        knob = borrow(knobs)[e]
        knob.batch_cap = int(m.current[0])
        knob.kv_budget_fraction = m.current[1]
        knob.speculation_depth = int(m.current[2])
        knob.quantization_tier = int(m.current[3])
        knob.prefill_decode_split = int(m.current[4])
        knob.priority_routing = int(m.current[5])


@entry_point
def score_windows(scoring, memory, window, metrics, terms):
    """Reward terms of the window just measured; docs/metrics.md has the formulas."""
    s = borrow(scoring)[0]
    for e in range(window.shape[0]):
        w, m, out, mem = borrow(window)[e], borrow(metrics)[e], borrow(terms)[e], borrow(memory)[e]
        judged, met, good, wait = 0.0, 0.0, 0.0, 0.0
        for k in range(MAX_CLASSES):
            judged += s.class_weight[k] * w.judged_by_class[k]
            wait += s.class_weight[k] * w.wait_ppm_by_class[k] / PPM
            for t in range(NUM_TIERS):
                count = s.class_weight[k] * w.met_by_class_tier[k * NUM_TIERS + t]
                met += count
                good += count * s.quality[k, t]
        out.offered = judged
        out.slo = met / judged if judged > 0.0 else 1.0
        out.throughput = good / judged if judged > 0.0 else 1.0
        out.violations = 1.0 - out.slo
        out.ttft = wait / judged if judged > 0.0 else 0.0
        out.itl = min(m.itl_p50_ms / s.itl_target_ms, 1.0)
        out.latency = 0.5 * (out.ttft + out.itl)
        reserved_gpu_s = m.reserved_gb_s / s.memory_limit_gb
        out.cost_usd = (
            s.price_usd_per_hour / S_PER_HOUR * (s.busy_share * m.busy_gpu_s + (1.0 - s.busy_share) * reserved_gpu_s)
        )
        out.cost = min(out.cost_usd / (s.price_usd_per_hour / S_PER_HOUR * s.max_gpus * s.window_s), 1.0)
        thrash = w.preemptions / max(m.active_requests + m.queue_depth, 1.0)
        out.memory = 1.0 if w.ooms > 0 else min(max(m.peak_memory_gb / s.memory_limit_gb, thrash), 1.0)
        reward = s.weights[0] * out.throughput - s.weights[1] * out.latency - s.weights[2] * out.violations
        reward -= s.weights[3] * out.cost + s.weights[4] * out.memory
        out.reward = min(max(reward, -1.0), 1.0)
        mem.step += 1
        mem.cost_so_far_usd += out.cost_usd
        mem.total_reward += out.reward
