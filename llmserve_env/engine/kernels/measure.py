"""Window metrics from what was counted: percentiles over the last windows, gauges at the window's end."""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.kernels.compilation import entry_point, kernel
from llmserve_env.engine.layout import (
    ITL_SUB_BINS,
    ITL_UNIT_SHIFT,
    MAX_CLASSES,
    RECENT_WINDOWS,
    SPLIT_OFF,
    SPLIT_UP,
    TTFT_RING,
)
from llmserve_env.engine.tiers import NUM_TIERS
from llmserve_env.units import BYTES_PER_GB, PS_PER_MS, PS_PER_S

SMOOTHING = 2.0 / (RECENT_WINDOWS + 1)
"""Weight of the newest window in exponential averages over about RECENT_WINDOWS windows."""
SLOW_SMOOTHING = SMOOTHING / 5.0
SURGE_RATIO = 1.5
"""A window with this many times the usual rate is a surge; agents are shown how long ago the last one was."""


@kernel
def move_to_front(values, low, high, pivot, with_equal):
    """Move what is below the pivot (or equal, if asked) to the front of values[low..high]; returns where it ends.

    Without branches: which side a value belongs to cannot be predicted.
    """
    end = low
    for i in range(low, high + 1):
        value = values[i]
        values[i] = values[end]
        values[end] = value
        end += (value <= pivot) if with_equal else (value < pivot)
    return end


@kernel
def select(values, low, high, k):
    """The value of rank k among values[low..high], which it reorders around that rank."""
    while low < high:
        pivot = values[(low + high) >> 1]
        first = move_to_front(values, low, high, pivot, False)
        if k < first:
            high = first - 1
            continue
        # Waits of clients that gave up are all alike, so values equal to the pivot are set aside together.
        low = move_to_front(values, first, high, pivot, True)
        if k < low:
            break
    return values[k]


@kernel
def recent_waits(environment, window_ps, values):
    """Copy the latest waits, newest first, back to the first that ended before the last windows; returns how many."""
    since = environment.now_ps - RECENT_WINDOWS * window_ps
    newest = environment.ttft_count - 1
    count = min(environment.ttft_count, TTFT_RING)
    for n in range(count):
        i = (newest - n) & (TTFT_RING - 1)
        if environment.ttft[0, i] <= since:
            return n
        values[n] = environment.ttft[1, i]
    return count


@kernel
def gap_quantile_ps(window, fraction):
    """Middle of the bin that holds this quantile of inter-token gaps; 0 without gaps."""
    if window.itl_samples == 0:
        return 0.0
    rank = int(np.ceil(fraction * window.itl_samples))
    seen, bin_index = 0, window.itl_first
    while bin_index < window.itl_last:
        seen += window.itl[bin_index]
        if seen >= rank:
            break
        bin_index += 1
    octave = max(bin_index // ITL_SUB_BINS - 1, 0)
    low = (bin_index - octave * ITL_SUB_BINS) << octave
    return (low + 0.5 * (1 << octave)) * (1 << ITL_UNIT_SHIFT)


@kernel
def oldest_wait_ps(environment, replicas, requests, progress, num_classes):
    """Age of the oldest waiting request that has no token yet."""
    oldest = environment.now_ps
    for r in range(replicas.shape[0]):
        for k in range(num_classes):
            q = replicas[r].head[k]
            while q >= 0 and progress[q].first_token_at_ps >= 0:
                q = progress[q].next
            if q >= 0:
                oldest = min(oldest, requests[q].arrival_at_ps)
    return environment.now_ps - oldest


@kernel
def smooth(average, value, num_windows, weight):
    """Exponential average that starts at its first value."""
    return value if num_windows == 0 else average + weight * (value - average)


@kernel
def update_recent(environment, window, length_s):
    """Move the sliding averages on by one window."""
    n = environment.num_windows
    rate = window.arrived / length_s
    environment.arrival_rate_rps = smooth(environment.arrival_rate_rps, rate, n, SMOOTHING)
    environment.usual_rate_rps = smooth(environment.usual_rate_rps, rate, n, SLOW_SMOOTHING)
    environment.surge_age_windows = (
        0 if rate > SURGE_RATIO * environment.usual_rate_rps else environment.surge_age_windows + 1
    )
    if window.arrived > 0:
        fresh = 0 if environment.mean_prompt_tokens == 0.0 else 1
        prompt_tokens = window.arrived_prompt_tokens / window.arrived
        environment.mean_prompt_tokens = smooth(environment.mean_prompt_tokens, prompt_tokens, fresh, SMOOTHING)
    judged, met = 0, 0
    for k in range(MAX_CLASSES):
        judged += window.judged_by_class[k]
    for k in range(MAX_CLASSES * NUM_TIERS):
        met += window.met_by_class_tier[k]
    environment.recent_judged[n % RECENT_WINDOWS] = judged
    environment.recent_met[n % RECENT_WINDOWS] = met
    environment.num_windows = n + 1


@kernel
def measure_fleet(environment, window, replicas, out):
    """Gauges over replicas."""
    queue, active, used, blocks, up, on_tier, serving = 0, 0, 0, 0, 0, 0, 0
    for r in range(replicas.shape[0]):
        replica = replicas[r]
        queue += replica.num_waiting
        active += replica.num_running
        if replica.in_service:
            used += replica.used_blocks
            blocks += replica.num_blocks
            up += replica.available_at_ps <= environment.now_ps
            on_tier += replica.tier == environment.quantization_tier
            serving += 1
    out.queue_depth = queue
    out.active_requests = active
    out.kv_cache_occupancy = used / blocks if blocks > 0 else 0.0
    out.available_replicas = up
    out.tier_progress = on_tier / serving if serving > 0 else 1.0
    out.split = 0.0 if environment.split == SPLIT_OFF else (1.0 if environment.split == SPLIT_UP else 0.5)
    out.peak_memory_gb = window.peak_memory_bytes / BYTES_PER_GB
    out.busy_gpu_s = window.busy_ps / PS_PER_S
    out.in_service_gpu_s = window.in_service_ps / PS_PER_S
    out.reserved_gb_s = window.reserved_byte_ms / (BYTES_PER_GB * 1000.0)


@entry_point
def measure(tables, state, metrics, waits):
    """Fill `metrics` with the last window of every environment; `waits` is scratch memory of TTFT_RING entries."""
    for e in range(state.environment.shape[0]):
        environment, window, out = state.environment[e], state.window[e], metrics[e]
        replicas = state.replicas[e]
        length_ps = max(environment.now_ps - window.opened_at_ps, 1)
        length_s = length_ps / PS_PER_S
        update_recent(environment, window, length_s)
        measure_fleet(environment, window, replicas, out)
        out.arrival_rate_rps = environment.arrival_rate_rps
        out.window_rate_rps = window.arrived / length_s
        out.surge_age_windows = environment.surge_age_windows
        out.mean_prompt_tokens = environment.mean_prompt_tokens
        out.throughput_tps = window.output_tokens / length_s
        out.acceptance_rate = window.accepted_tokens / window.drafted_tokens if window.drafted_tokens > 0 else 0.0
        judged, met = environment.recent_judged.sum(), environment.recent_met.sum()
        out.slo_attainment = met / judged if judged > 0 else 1.0
        out.itl_p50_ms = gap_quantile_ps(window, 0.5) / PS_PER_MS
        oldest_ms = (
            oldest_wait_ps(
                environment,
                replicas,
                state.requests[e],
                state.progress[e],
                tables.deployment[0].num_classes,
            )
            / PS_PER_MS
        )
        n = recent_waits(environment, length_ps, waits)
        out.oldest_wait_ms = oldest_ms
        # The first selection leaves everything above its rank to the right, which the second then skips.
        out.ttft_p50_ms = select(waits, 0, n - 1, (n + 1) // 2 - 1) / PS_PER_MS if n > 0 else oldest_ms
        late_ms = select(waits, (n + 1) // 2 - 1, n - 1, (99 * n + 99) // 100 - 1) / PS_PER_MS if n > 0 else 0.0
        out.ttft_p99_ms = max(late_ms, oldest_ms)
        for k in range(MAX_CLASSES):
            out.class_share[k] = window.arrived_by_class[k] / window.arrived if window.arrived > 0 else 0.0
