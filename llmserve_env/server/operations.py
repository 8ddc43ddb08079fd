"""The Prometheus metrics at /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Operations:
    """Counters of one application, in their own registry, so that one process can hold several applications."""

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
        self._steps_of: dict[str, Counter] = {}
        self._request_of: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self.limited = Counter("llmserve_rate_limited", "Requests answered 429", registry=self.registry)

    def steps_of(self, task_id: str) -> Counter:
        """The counter of a task, cached because looking it up by label takes longer than counting."""
        if task_id not in self._steps_of:
            self._steps_of[task_id] = self.steps.labels(task_id)
        return self._steps_of[task_id]

    def note_request(self, method: str, route: str, status: int, took_s: float) -> None:
        """Count one answered request."""
        key = (method, route, status)
        if key not in self._request_of:
            self._request_of[key] = self.requests.labels(method, route, str(status)), self.latency.labels(route)
        count, latency = self._request_of[key]
        count.inc()
        latency.observe(took_s)
