"""Metrics that observations carry, and their names on the wire: observations are written and read from this table."""

from __future__ import annotations

WIRE_NAMES = {
    "queue_depth": "queue_depth",
    "active_requests": "active_requests",
    "kv_cache_occupancy": "kv_cache_occupancy",
    "mean_prompt_tokens": "mean_prompt_length",
    "ttft_p50_ms": "p50_ttft_ms",
    "ttft_p99_ms": "p99_ttft_ms",
    "itl_p50_ms": "p50_itl_ms",
    "throughput_tps": "throughput_tps",
    "slo_attainment": "slo_compliance_rate",
    "peak_memory_gb": "gpu_memory_used_gb",
    "arrival_rate_rps": "request_arrival_rate",
    "acceptance_rate": "spec_acceptance_rate",
}
"""Metric -> field of the observation."""
WHOLE_NUMBERS = ("queue_depth", "active_requests")
"""Fields of the observation that are integers."""
