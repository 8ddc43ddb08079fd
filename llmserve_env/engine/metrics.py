"""Window metrics: what an operator's dashboard would show, defined in docs/metrics.md."""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.deployment import MAX_CLASSES

METRICS_DTYPE = np.dtype(
    [
        ("queue_depth", "f8"),
        ("active_requests", "f8"),
        ("kv_cache_occupancy", "f8"),
        ("mean_prompt_tokens", "f8"),
        ("ttft_p50_ms", "f8"),
        ("ttft_p99_ms", "f8"),
        ("itl_p50_ms", "f8"),
        ("throughput_tps", "f8"),
        ("slo_attainment", "f8"),
        ("peak_memory_gb", "f8"),
        ("arrival_rate_rps", "f8"),
        ("window_rate_rps", "f8"),
        ("surge_age_windows", "f8"),
        ("acceptance_rate", "f8"),
        ("oldest_wait_ms", "f8"),
        ("busy_gpu_s", "f8"),
        ("in_service_gpu_s", "f8"),
        ("reserved_gb_s", "f8"),
        ("available_replicas", "f8"),
        ("tier_progress", "f8"),
        ("split", "f8"),
        ("class_share", "f8", (MAX_CLASSES,)),
    ]
)
"""`tier_progress`: fraction of in-service replicas on the target tier; `split`: 0 off, 0.5 starting, 1 up."""
