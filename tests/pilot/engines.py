"""An engine in memory that a pilot can steer: it serves what its limits allow and reports as vLLM does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from llmserve_env.agents.agent import AgentView
from llmserve_env.backends.real.plugin.llmserve_steering.control import Status
from llmserve_env.engine.knobs import NAMES, named
from llmserve_env.errors import ProviderError
from llmserve_env.pilot.readings import GAP, TTFT, Scrape, parse_scrape

EDGES = (0.1, 0.5, 1.0, 5.0)
START = Status(0, 32, 2_048, 0, 1_000, 0, 64, 2_048, 0, 32, 4_096, 2_000, False, False, 0, 0.0)


def page(counters: Mapping[str, float], waits_s: list[float]) -> str:
    """Metrics as vLLM writes them."""
    lines = [f'{name}{{engine="0"}} {value}' for name, value in counters.items()]
    for name, values in ((TTFT, waits_s), (GAP, [wait / 10 for wait in waits_s])):
        for edge in (*EDGES, float("inf")):
            shown = "+Inf" if edge == float("inf") else str(edge)
            lines.append(f'{name}_bucket{{engine="0",le="{shown}"}} {sum(value <= edge for value in values)}')
        lines += [f'{name}_count{{engine="0"}} {len(values)}', f'{name}_sum{{engine="0"}} {sum(values)}']
    return "\n".join(lines)


@dataclass
class FakeEngine:
    """Ten requests a second, whose waits depend on the batch cap."""

    found: Status = START
    at_s: float = 0.0
    waits_s: list[float] = field(default_factory=list)
    orders: list[dict[str, Any]] = field(default_factory=list)
    is_gone: bool = False
    queue: int = 3

    def serve(self, seconds: float = 5.0) -> None:
        """Time passes."""
        self.at_s += seconds
        self.waits_s += [8.0 / self.found.batch_cap] * int(10 * seconds)
        self.found = replace(self.found, busy_s=self.found.busy_s + 0.6 * seconds)

    def scrape(self) -> Scrape:
        if self.is_gone:
            raise ProviderError("the metrics do not answer")
        done = len(self.waits_s)
        counters = {
            "vllm:num_requests_running": 5,
            "vllm:num_requests_waiting": self.queue,
            "vllm:kv_cache_usage_perc": 0.4,
            "vllm:num_preemptions_total": 0,
            "vllm:prompt_tokens_total": 100 * done,
            "vllm:generation_tokens_total": 50 * done,
        }
        return parse_scrape(page(counters, self.waits_s), self.at_s)

    def status(self) -> Status:
        return self.found

    def apply(self, knobs: Mapping[str, Any]) -> None:
        self.orders.append(dict(knobs))
        withheld = round((1.0 - knobs["kv_budget_fraction"]) * self.found.num_blocks)
        self.found = replace(
            self.found, batch_cap=knobs["batch_cap"], token_budget=knobs["token_budget"], withheld_blocks=withheld
        )


@dataclass
class Wisher:
    """A policy that wants these knobs, or fails."""

    wishes: dict[str, float]
    name: str = "wisher"
    failure: Exception | None = None
    views: list[AgentView] = field(default_factory=list)

    def reset(self, task: Any, rngs: Any) -> None:
        """Nothing to remember."""

    def act(self, view: AgentView) -> Any:
        self.views.append(view)
        if self.failure is not None:
            raise self.failure
        knobs = np.full((1, len(NAMES)), np.nan)
        for name, value in self.wishes.items():
            named(knobs)[name] = value
        return knobs
