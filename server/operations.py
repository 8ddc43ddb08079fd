"""What operators scrape at /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Operations:
    """Counters of one process, in a registry of their own so that several apps can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "llmserve_http_requests", "HTTP requests answered", ["method", "route", "status"], registry=self.registry
        )
        self.latency = Histogram(
            "llmserve_http_request_seconds", "Time to answer", ["route"], buckets=BUCKETS_S, registry=self.registry
        )
        self.steps = Counter("llmserve_steps", "Windows served", ["task"], registry=self.registry)
        self.live_sessions = Gauge("llmserve_live_sessions", "Sessions in memory", registry=self.registry)
        self.stored_sessions = Gauge("llmserve_stored_sessions", "Sessions in the store", registry=self.registry)
        self.websockets = Gauge("llmserve_websocket_sessions", "Open OpenEnv WebSockets", registry=self.registry)
        self.limited = Counter("llmserve_rate_limited", "Requests answered 429", registry=self.registry)
