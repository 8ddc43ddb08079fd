"""Compiled parts of a step outside the engine: which knob changes apply, and what a window is worth."""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.deployment import MAX_CLASSES
from llmserve_env.engine.kernels.compilation import entry_point, kernel
from llmserve_env.engine.knobs import KNOBS, KNOBS_DTYPE
from llmserve_env.engine.layout import ITL_SUB_BINS, ITL_UNIT_SHIFT
from llmserve_env.engine.tiers import NUM_TIERS
from llmserve_env.units import PPM, PS_PER_MS, S_PER_HOUR

NUM_KNOBS = len(KNOBS)
REWARD_TERMS = ("throughput", "latency", "violations", "cost", "memory")
"""Terms of the reward, each with a weight."""

SCORING_DTYPE = np.dtype(
    [
        ("weights", [(term, "f8") for term in REWARD_TERMS]),
        ("class_weight", "f8", (MAX_CLASSES,)),
        ("quality", "f8", (MAX_CLASSES, NUM_TIERS)),
        ("itl_comfort_ms", "f8"),
        ("itl_limit_ms", "f8"),
        ("memory_limit_gb", "f8"),
        ("busy_share", "f8"),
        ("bills_gpu_time", "i8"),
        ("counts_reserved_memory", "i8"),
        ("price_usd_per_hour", "f8"),
        ("idle_gpus", "f8"),
        ("max_gpus", "f8"),
        ("window_s", "f8"),
        ("window_budget_usd", "f8"),
        ("num_features", "i8"),
        ("is_offered", "i8", (NUM_KNOBS,)),
        ("is_active", "i8", (NUM_KNOBS,)),
        ("dwell_steps", "i8", (NUM_KNOBS,)),
        ("default", "f8", (NUM_KNOBS,)),
        ("num_choices", "i8", (NUM_KNOBS,)),
        ("choices", "f8", (NUM_KNOBS, NUM_TIERS)),
        ("is_log", "i8", (NUM_KNOBS,)),
        ("feature_scale", "f8", (NUM_KNOBS,)),
        ("shows_dwell", "i8", (NUM_KNOBS,)),
    ]
)
"""A task's reward and the rules of its knobs as numbers; a column per knob of the table.

`window_budget_usd`: dollars per window that count as full cost where tokens are billed; 0 where GPU time is.
"""

CONTROL_DTYPE = np.dtype(
    {
        "names": [
            "current",
            "knobs",
            "changed_at_step",
            "held",
            "step",
            "window_usd",
            "cost_so_far_usd",
            "total_reward",
        ],
        "formats": [("f8", NUM_KNOBS), KNOBS_DTYPE, ("i8", NUM_KNOBS), ("i8", NUM_KNOBS), "i8", "f8", "f8", "f8"],
        "offsets": [8 * n for n in (0, 0, NUM_KNOBS, 2 * NUM_KNOBS, *range(3 * NUM_KNOBS, 3 * NUM_KNOBS + 4))],
    }
)
"""The controller's side of an episode: steps taken, knobs in force and held, money and reward so far.

`current` and `knobs` are the same memory: the knobs in force, by column and by name. `window_usd`: dollars charged for
the last window, where requests are billed per token.
"""

TERMS_DTYPE = np.dtype(
    [
        *((term, "f8") for term in REWARD_TERMS),
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
def look_up_levels(indices, num_levels, levels, columns, knobs):
    """Fill these columns of `knobs` with the level that each index names; False if one of them names none."""
    for e in range(indices.shape[0]):
        for k in range(indices.shape[1]):
            if not 0 <= indices[e, k] < num_levels[k]:
                return False
            knobs[e, columns[k]] = levels[k, indices[e, k]]
    return True


@kernel
def dwell_left(scoring, control, knob):
    """Steps until a knob that has changed may change again."""
    if control.changed_at_step[knob] < 0:
        return 0
    return max(scoring.dwell_steps[knob] - (control.step - control.changed_at_step[knob]), 0)


@entry_point
def hold_knobs(scoring, control, requested):
    """Find the knobs that apply: a requested change is held while a knob is inactive or must dwell at its value."""
    s = scoring[0]
    for e in range(requested.shape[0]):
        c = control[e]
        for k in range(len(c.current)):
            wanted = s.default[k] if np.isnan(requested[e, k]) else requested[e, k]
            c.held[k] = 0
            if wanted != c.current[k]:
                if not s.is_active[k] or dwell_left(s, c, k) > 0:
                    c.held[k] = 1
                else:
                    c.current[k] = wanted
                    c.changed_at_step[k] = c.step


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
def bill(scoring, control, metrics, out):
    """Price the window, and place the price between the least (nothing, or an idle fleet) and the most possible."""
    s = scoring
    if s.window_budget_usd > 0.0:
        out.cost_usd = control.window_usd
        out.cost = min(control.window_usd / s.window_budget_usd, 1.0)
        return
    if s.bills_gpu_time:
        gpus = metrics.in_service_gpu_s
    else:
        gpus = s.busy_share * metrics.busy_gpu_s + (1.0 - s.busy_share) * metrics.reserved_gb_s / s.memory_limit_gb
    out.cost_usd = s.price_usd_per_hour / S_PER_HOUR * gpus
    span = s.max_gpus - s.idle_gpus
    # A fleet that cannot grow costs the same whatever the actions are.
    out.cost = min(max((gpus / s.window_s - s.idle_gpus) / span, 0.0), 1.0) if span > 0.0 else 0.0


@kernel
def weigh(weights, terms):
    """The weighted sum of the terms: throughput adds, the others subtract."""
    reward = weights.throughput * terms.throughput - weights.latency * terms.latency
    reward -= weights.violations * terms.violations
    return reward - (weights.cost * terms.cost + weights.memory * terms.memory)


@entry_point
def score_windows(scoring, control, window, metrics, terms):
    """Reward terms of the window just measured; docs/metrics.md has the formulas."""
    s = scoring[0]
    for e in range(window.shape[0]):
        w, m, out, c = window[e], metrics[e], terms[e], control[e]
        count_served(s, w, out)
        slowness = (mean_gap_ms(w) - s.itl_comfort_ms) / (s.itl_limit_ms - s.itl_comfort_ms)
        # A request that missed its SLO counts as the slowest stream; otherwise serving nothing would look smooth.
        out.itl = 1.0 - out.slo * (1.0 - min(max(slowness, 0.0), 1.0))
        out.latency = 0.5 * (out.ttft + out.itl)
        bill(s, c, m, out)
        thrash = w.preemptions / max(m.active_requests + m.queue_depth, 1.0)
        reserved = c.knobs.kv_budget_fraction if s.counts_reserved_memory else 0.0
        out.memory = 1.0 if w.ooms > 0 else min(max(reserved, thrash), 1.0)
        out.reward = min(max(weigh(s.weights, out), -1.0), 1.0)
        c.step += 1
        c.cost_so_far_usd += out.cost_usd
        c.total_reward += out.reward
