"""From what a fluid queue served to the records that rewards and observations are made of.

Fields that a table knows nothing about stay 0; docs/tables.md lists them.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.backends.table.fluid_queue import FluidQueue, ServedWindow
from llmserve_env.engine.deployment import MAX_CLASSES
from llmserve_env.engine.kernels.measure import SLOW_SMOOTHING, SMOOTHING, SURGE_RATIO
from llmserve_env.engine.layout import ITL_BINS, ITL_SUB_BINS, ITL_UNIT_SHIFT, NUM_TIERS, RECENT_WINDOWS, WINDOW_DTYPE
from llmserve_env.engine.metrics import METRICS_DTYPE
from llmserve_env.engine.state import records
from llmserve_env.env.kernels import PPM
from llmserve_env.request_table import RequestTable
from llmserve_env.units import BYTES_PER_GB, PS_PER_MS


class WindowRecords:
    """Counters and metrics of the last window, shape (1,), as the simulator's `Rollouts` has them."""

    def __init__(self, requests: RequestTable, num_replicas: int, window_s: float) -> None:
        self.window = records((1,), WINDOW_DTYPE)
        self.metrics = records((1,), METRICS_DTYPE)
        self._requests = requests
        self._num_replicas = num_replicas
        self._window_s = window_s
        self._is_judged = np.zeros(len(requests), bool)
        self._ttft_ms: deque[Array] = deque(maxlen=RECENT_WINDOWS)
        self._verdicts: deque[tuple[int, int]] = deque(maxlen=RECENT_WINDOWS)
        self._usual_rps: float | None = None

    def update(self, queue: FluidQueue, served: ServedWindow, tier: int, now_ps: int) -> None:
        """Take in one window."""
        assert served.busiest is not None  # every slice looks the table up
        ttft_ms = np.concatenate(served.waits_ms or [np.zeros(0)]) + served.busiest.ttft_p50_ms
        self._count(served)
        self._judge(queue, served, ttft_ms, tier, now_ps)
        self._count_gaps(served)
        self._ttft_ms.append(ttft_ms)
        self._measure_traffic(served)
        self._measure_service(queue, served, now_ps)

    def _count(self, served: ServedWindow) -> None:
        window = self.window[0]
        for name in WINDOW_DTYPE.names or ():
            window[name] = 0
        for name in ("rejected", "abandoned", "finished"):
            window[name] = getattr(served, name)
        window["arrived"] = len(served.arrived)
        window["arrived_prompt_tokens"] = self._requests.prompt_tokens[served.arrived].sum()
        window["arrived_by_class"] = self._by_class(served.arrived)
        window["output_tokens"] = round(served.output_tokens)
        window["ooms"] = int(served.is_out_of_memory)
        window["peak_memory_bytes"] = round(served.peak_memory_gb * BYTES_PER_GB)

    def _by_class(self, rows: Array, weights: Array | None = None) -> Array:
        return np.bincount(self._requests.priority[rows], weights, minlength=MAX_CLASSES)

    def _judge(self, queue: FluidQueue, served: ServedWindow, ttft_ms: Array, tier: int, now_ps: int) -> None:
        """Each request once: at its start by its TTFT, or as missed when lost or overdue in the queue."""
        started = np.concatenate(served.started or [np.zeros(0, np.int64)])
        fresh = ~self._is_judged[started]
        rows, slo_ms = started[fresh], self._requests.ttft_slo_ps[started[fresh]] / PS_PER_MS
        share = ttft_ms[fresh] / slo_ms
        overdue = queue.waiting[
            now_ps - self._requests.arrival_at_ps[queue.waiting] > self._requests.ttft_slo_ps[queue.waiting]
        ]
        missed = np.concatenate((*served.lost, overdue))
        missed = missed[~self._is_judged[missed]]
        self._is_judged[rows] = self._is_judged[missed] = True
        window, met = self.window[0], rows[share <= 1.0]
        window["judged_by_class"] = self._by_class(rows) + self._by_class(missed)
        wait_ppm = self._by_class(rows, np.minimum(share, 1.0)) + self._by_class(missed)
        window["wait_ppm_by_class"] = np.rint(PPM * wait_ppm)
        window["met_by_class_tier"][np.arange(MAX_CLASSES) * NUM_TIERS + tier] = self._by_class(met)
        self._verdicts.append((len(rows) + len(missed), len(met)))

    def _count_gaps(self, served: ServedWindow) -> None:
        """All gaps of the window are the table's time per token, in the bin the simulator would put it."""
        assert served.busiest is not None  # every slice looks the table up
        units, octave = int(served.busiest.tpot_ms * PS_PER_MS) >> ITL_UNIT_SHIFT, 0
        while units >> octave >= 2 * ITL_SUB_BINS:
            octave += 1
        window = self.window[0]
        gap_bin = min(octave * ITL_SUB_BINS + (units >> octave), ITL_BINS - 1)
        window["itl"][gap_bin] = window["output_tokens"]
        window["itl_first"] = window["itl_last"] = gap_bin
        window["itl_samples"] = window["output_tokens"]

    def _measure_traffic(self, served: ServedWindow) -> None:
        metrics, count = self.metrics[0], len(served.arrived)
        rate_rps = count / self._window_s
        is_first = self._usual_rps is None
        usual = rate_rps if self._usual_rps is None else self._usual_rps + SLOW_SMOOTHING * (rate_rps - self._usual_rps)
        self._usual_rps = usual
        metrics["window_rate_rps"] = rate_rps
        metrics["arrival_rate_rps"] += (1.0 if is_first else SMOOTHING) * (rate_rps - metrics["arrival_rate_rps"])
        metrics["surge_age_windows"] = 0 if rate_rps > SURGE_RATIO * usual else metrics["surge_age_windows"] + 1
        if count:
            mean = self._requests.prompt_tokens[served.arrived].mean()
            weight = 1.0 if metrics["mean_prompt_tokens"] == 0.0 else SMOOTHING
            metrics["mean_prompt_tokens"] += weight * (mean - metrics["mean_prompt_tokens"])
        metrics["class_share"] = self.window[0]["arrived_by_class"] / max(count, 1)

    def _measure_service(self, queue: FluidQueue, served: ServedWindow, now_ps: int) -> None:
        assert served.busiest is not None  # every slice looks the table up
        metrics, waits = self.metrics[0], np.concatenate(self._ttft_ms)
        unserved = queue.waiting[~queue.has_started[queue.waiting]]
        oldest_ms = (now_ps - int(self._requests.arrival_at_ps[unserved[0]])) / PS_PER_MS if len(unserved) else 0.0
        judged, met = (sum(column) for column in zip(*self._verdicts, strict=True))
        spread_ms = served.busiest.ttft_p99_ms - served.busiest.ttft_p50_ms
        metrics["queue_depth"], metrics["active_requests"] = len(queue.waiting), len(queue.running)
        metrics["ttft_p50_ms"] = np.percentile(waits, 50) if len(waits) else oldest_ms
        metrics["ttft_p99_ms"] = max(np.percentile(waits, 99) + spread_ms if len(waits) else 0.0, oldest_ms)
        metrics["itl_p50_ms"] = served.busiest.tpot_ms if served.output_tokens > 0.0 else 0.0
        metrics["throughput_tps"] = served.output_tokens / self._window_s
        metrics["slo_attainment"] = met / judged if judged else 1.0
        metrics["peak_memory_gb"] = served.peak_memory_gb
        metrics["oldest_wait_ms"] = oldest_ms
        metrics["busy_gpu_s"] = served.busy_gpu_s
        metrics["in_service_gpu_s"] = self._num_replicas * self._window_s
        metrics["reserved_gb_s"] = self._num_replicas * self._window_s * served.peak_memory_gb
        metrics["available_replicas"] = 0 if served.is_out_of_memory else self._num_replicas
        metrics["tier_progress"] = 1.0
