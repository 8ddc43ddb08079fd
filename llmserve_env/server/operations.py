"""The Prometheus metrics at /metrics."""

from __future__ import annotations

from collections.abc import Mapping

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
        self.episode_bytes = Gauge("llmserve_episode_bytes", "Memory of held episodes", registry=self.registry)
        self.packed_episodes = Gauge("llmserve_packed_episodes", "Episodes held compressed", registry=self.registry)
        self.resident_bytes = Gauge("llmserve_resident_bytes", "Memory of the process", registry=self.registry)
        self.store_bytes = Gauge("llmserve_store_bytes", "Size of the session store", registry=self.registry)
        self.ready = Gauge("llmserve_ready", "1 if /ready answers 200", registry=self.registry)
        self.connections = Gauge("llmserve_connections", "Open connections", registry=self.registry)
        self.errors = Counter(
            "llmserve_errors",
            "Unexpected errors: a 500, or an error frame that gives no reason",
            registry=self.registry,
        )
        self.store_errors = Counter(
            "llmserve_store_errors", "Calls that the session store failed", ["where"], registry=self.registry
        )
        self.evicted = Counter("llmserve_evicted_sessions", "Sessions deleted to make room", registry=self.registry)
        self.refused_connections = Counter(
            "llmserve_refused_connections", "Connections closed by the server", ["reason"], registry=self.registry
        )
        self._refused_so_far: dict[str, int] = {}
        self._steps_of: dict[str, Counter] = {}
        self._request_of: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self.limited = Counter("llmserve_rate_limited", "Requests answered 429", registry=self.registry)

    def steps_of(self, task_id: str) -> Counter:
        """The counter of a task, cached because looking it up by label takes longer than counting."""
        if task_id not in self._steps_of:
            self._steps_of[task_id] = self.steps.labels(task_id)
        return self._steps_of[task_id]

    def note_refused_connections(self, refused: Mapping[str, int]) -> None:
        """Take over the counts of the process's guard, which has no metrics registry."""
        for reason, count in refused.items():
            self.refused_connections.labels(reason).inc(count - self._refused_so_far.get(reason, 0))
            self._refused_so_far[reason] = count

    def note_request(self, method: str, route: str, status: int, took_s: float) -> None:
        """Count one answered request."""
        key = (method, route, status)
        if key not in self._request_of:
            self._request_of[key] = self.requests.labels(method, route, str(status)), self.latency.labels(route)
        count, latency = self._request_of[key]
        count.inc()
        latency.observe(took_s)
