"""What others see of a pilot: Prometheus metrics, the latest decisions as JSON, and its log."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from llmserve_env.errors import ConfigError
from llmserve_env.pilot.decision import Decision
from llmserve_env.pilot.pilot import Pilot

KEPT_DECISIONS = 1_000
REQUEST_TIMEOUT_S = 5.0


class PilotMetrics:
    """Every decision as metrics; an autoscaler reads `desired_replicas`, or the sum of `load` over a fleet."""

    def __init__(self, pilot: Pilot) -> None:
        self.registry = CollectorRegistry()
        self.decisions: deque[Decision] = deque(maxlen=KEPT_DECISIONS)
        self._outcomes = Counter(
            "llmserve_pilot_decisions", "decisions by what became of them", ["outcome"], registry=self.registry
        )
        self._knobs = Gauge(
            "llmserve_pilot_knob", "knobs: wanted, permitted, in force", ["knob", "value"], registry=self.registry
        )
        self._replicas = Gauge(
            "llmserve_pilot_desired_replicas",
            "replicas that would bring the load to its target",
            registry=self.registry,
        )
        self._load = Gauge(
            "llmserve_pilot_load", "replicas' worth of load; their sum is what a fleet needs", registry=self.registry
        )
        self._load.set(pilot.load)
        self._replicas.set(pilot.bounds.replicas.desired(pilot.load))
        dry_run = Gauge("llmserve_pilot_dry_run", "1 while nothing is applied", registry=self.registry)
        dry_run.set(float(pilot.is_dry_run))
        age = Gauge(
            "llmserve_pilot_metrics_age_seconds", "since the engine's metrics were read", registry=self.registry
        )
        age.set_function(lambda: pilot.metrics_age_s)
        pilot.listeners.append(self.record)

    def record(self, decision: Decision) -> None:
        """Update the metrics with a decision."""
        self.decisions.append(decision)
        self._outcomes.labels(decision.outcome).inc()
        self._load.set(decision.load)
        self._replicas.set(decision.desired_replicas)
        for value, knobs in (
            ("wanted", decision.wanted),
            ("permitted", decision.permitted),
            ("in_force", decision.in_force),
        ):
            for name, number in knobs.items():
                self._knobs.labels(name, value).set(float(number))


class Exporter:
    """Serves `/metrics`, `/decisions` and `/health` in a separate thread."""

    def __init__(self, metrics: PilotMetrics, host: str, port: int) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_TIMEOUT_S

            def do_GET(self) -> None:
                pages: dict[str, Callable[[], tuple[str, bytes]]] = {
                    "/metrics": lambda: (CONTENT_TYPE_LATEST, generate_latest(metrics.registry)),
                    "/decisions": lambda: ("application/json", _as_json(metrics)),
                    "/health": lambda: ("application/json", b'{"status": "ok"}'),
                }
                page = pages.get(self.path.split("?", 1)[0])
                kind, body = page() if page else ("application/json", b'{"detail": "ask for /metrics or /decisions"}')
                self.send_response(200 if page else 404)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: a line per scrape would bury everything else."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error}; choose another with --listen") from error
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="llmserve-pilot-exporter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _as_json(metrics: PilotMetrics) -> bytes:
    return json.dumps([decision.as_json() for decision in list(metrics.decisions)]).encode()


class DecisionLog:
    """A line of JSON per decision, which `llmserve pilot replay` reads."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: TextIO = path.open("a", buffering=1, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write decisions to {path}: {error}") from error

    def record(self, decision: Decision) -> None:
        """Add a decision."""
        self._file.write(json.dumps(decision.as_json()) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
