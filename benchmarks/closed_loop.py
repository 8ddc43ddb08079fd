"""A closed loop on the simulator: so many requests are always in flight, and each answer is followed by another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmserve_env.engine.costs import GpuCosts, HostCosts
from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.engine import Engine
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.request_table import RequestTable
from llmserve_env.units import PS_PER_MS, PS_PER_S

ROUNDS = 10
"""Requests per request in flight, as the published benchmarks send; the first of them arrive together."""
MAX_REQUESTS = 4_000
SPREAD = 0.1
"""Lengths vary by this share around the stated ones: exactly equal requests would run in lock-step for ever."""
END_PS = 100_000 * PS_PER_S
UNLIMITED = 1 << 50


@dataclass(frozen=True, slots=True)
class Load:
    """What the clients do."""

    prompt_tokens: int
    output_tokens: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class LoopResult:
    """Means over all requests, in milliseconds."""

    ttft_ms: float
    tpot_ms: float


def closed_loop(
    costs: GpuCosts, tier: int, load: Load, host: HostCosts, is_async: bool, token_budget: int, seed: int = 0
) -> LoopResult:
    """Serve ten requests per request in flight.

    All requests wait from the start and the batch has as many slots as there are clients: a slot that becomes free is
    taken at once, so a request's time to first token counts from the end of the answer that freed its slot.
    """
    count = min(ROUNDS * load.concurrency, max(MAX_REQUESTS, 2 * load.concurrency))
    rng = np.random.default_rng(seed)
    prompts, outputs = (
        np.maximum(2, np.rint(mean * rng.uniform(1 - SPREAD, 1 + SPREAD, count))).astype(np.int64)
        for mean in (load.prompt_tokens, load.output_tokens)
    )
    deployment = Deployment(
        costs=costs,
        max_running=load.concurrency,
        token_budget=token_budget,
        max_model_len=int((prompts + outputs).max()),
        num_blocks_override=UNLIMITED // 2**20,
        memory_limit_bytes=UNLIMITED,
        waiting_room=(count,),
        async_scheduling=is_async,
        host=host,
    )
    engine = Engine(deployment, RequestTable.of(np.zeros(count, np.int64), prompts, outputs), seed)
    engine.serve(ServingKnobs(batch_cap=load.concurrency, quantization_tier=tier), END_PS)
    progress = engine.request_records()
    first_ms, finished_ms = (progress[name] / PS_PER_MS for name in ("first_token_at_ps", "finished_at_ps"))
    freed_ms = np.sort(finished_ms)[: max(count - load.concurrency, 0)]
    started_ms = np.concatenate([np.zeros(count - len(freed_ms)), freed_ms])
    return LoopResult(
        float((first_ms - started_ms).mean() + host.front_end_ps / PS_PER_MS),
        float(((finished_ms - first_ms) / (outputs - 1)).mean()),
    )
