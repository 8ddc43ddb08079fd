"""A closed loop on the simulator: so many requests are always in flight, and each answer is followed by another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.costs import GpuCosts, HostCosts
from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.engine import Engine
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.request_table import RequestTable
from llmserve_env.units import PS_PER_MS, PS_PER_S, ms_to_ps

ROUNDS = 10
"""Requests per request in flight, as the published benchmarks send; the first of them are sent together."""
MAX_REQUESTS = 4_000
TURNAROUND_PS = ms_to_ps(1.0)
"""What a client takes from the last token of an answer until it sends its next request."""
IN_FLIGHT = 3
"""Tokens of a request that may be on their way while it is looked at."""
NOT_YET_PS = 1_000_000 * PS_PER_S
UNLIMITED = 1 << 50
BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Load:
    """What the clients do."""

    prompt_tokens: int
    output_tokens: int
    concurrency: int
    shortest: float = 1.0
    """Lengths are spread evenly between this share of the stated ones and the whole."""

    @property
    def longest(self) -> int:
        """Tokens of the longest request."""
        return self.prompt_tokens + self.output_tokens

    def lengths(self, count: int, seed: int) -> tuple[Array, Array]:
        """Prompt and output tokens of the requests."""
        rng = np.random.default_rng(seed)
        prompts, outputs = (
            rng.integers(max(2, int(self.shortest * longest)), longest, count, endpoint=True)
            for longest in (self.prompt_tokens, self.output_tokens)
        )
        return prompts, outputs


@dataclass(frozen=True, slots=True)
class LoopResult:
    """Means over all requests, in milliseconds."""

    ttft_ms: float
    tpot_ms: float


@dataclass(frozen=True, slots=True)
class Server:
    """What serves them."""

    costs: GpuCosts
    """With the tier that is served, alone."""
    host: HostCosts
    is_async: bool
    token_budget: int
    kv_tokens: int

    def deployment(self, prompts: Array, outputs: Array, concurrency: int) -> Deployment:
        """An engine for these requests."""
        return Deployment(
            costs=self.costs,
            max_running=concurrency,
            token_budget=self.token_budget,
            max_model_len=int((prompts + outputs).max()),
            num_blocks_override=self.kv_tokens // BLOCK_TOKENS,
            block_tokens=BLOCK_TOKENS,
            memory_limit_bytes=UNLIMITED,
            waiting_room=(len(prompts),),
            async_scheduling=self.is_async,
            host=self.host,
        )


def closed_loop(server: Server, load: Load, seed: int = 0) -> LoopResult:
    """Serve ten requests per request in flight."""
    count = min(ROUNDS * load.concurrency, max(MAX_REQUESTS, 2 * load.concurrency))
    prompts, outputs = load.lengths(count, seed)
    loop = _Loop(server.deployment(prompts, outputs, load.concurrency), prompts, outputs, load.concurrency)
    loop.run()
    progress = loop.engine.request_records()
    sent_ms = loop.sent_ps / PS_PER_MS
    first_ms, finished_ms = (progress[name] / PS_PER_MS for name in ("first_token_at_ps", "finished_at_ps"))
    return LoopResult(
        float((first_ms - sent_ms).mean()), float(((finished_ms - first_ms) / np.maximum(outputs - 1, 1)).mean())
    )


class _Loop:
    """Requests that are sent when the answers before them have come."""

    def __init__(self, deployment: Deployment, prompts: Array, outputs: Array, concurrency: int) -> None:
        self.outputs, self.num_sent = outputs, concurrency
        self.tier = deployment.costs.tiers[deployment.costs.first_tier]
        self.knobs = ServingKnobs(batch_cap=concurrency, quantization_tier=deployment.costs.first_tier)
        arrivals = np.where(np.arange(len(outputs)) < concurrency, 0, NOT_YET_PS)
        self.engine = Engine(deployment, RequestTable.of(arrivals, prompts, outputs), 0)
        self.sent_ps = self.engine.state.requests[0]["arrival_at_ps"]
        self.answered = np.zeros(len(outputs), bool)

    def run(self) -> None:
        """Serve until every request has its answer."""
        finished_ps = self.engine.state.progress[0]["finished_at_ps"]
        while not self.answered.all():
            self.engine.serve(self.knobs, self.engine.now_ps + self._quiet_ps())
            new = np.flatnonzero((finished_ps >= 0) & ~self.answered)
            self.answered[new] = True
            following = np.sort(finished_ps[new])[: len(self.outputs) - self.num_sent]
            self.sent_ps[self.num_sent : self.num_sent + len(following)] = following + TURNAROUND_PS
            self.num_sent += len(following)

    def _quiet_ps(self) -> int:
        """A time in which no answer can end and be followed by a request."""
        replica = self.engine.state.replicas[0, 0]
        batch, n = replica["batch"], int(replica["num_running"])
        executing_ps = max(int(replica["done_at_ps"]) - self.engine.now_ps, 0) if replica["end_at_ps"] >= 0 else 0
        if n == 0:
            return executing_ps + TURNAROUND_PS
        requests = batch["request"][:n]
        emitted = np.maximum(batch["known"][:n] - self.engine.state.requests[0]["prompt_tokens"][requests], 0)
        fewest_left = int((self.outputs[requests] - emitted).min())
        iteration_ps = self.tier.overhead_ps + np.interp(n - 1, self.tier.gemm.x, self.tier.gemm.ps)
        return executing_ps + TURNAROUND_PS + max(0, fewest_left - IN_FLIGHT) * int(iteration_ps)
