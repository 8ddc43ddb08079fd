"""Simple cases: one replica, one knob setting, a pool of known size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from llmserve_env.engine.costs import MAX_SPECULATION_DEPTH
from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.request_table import RequestTable
from llmserve_env.units import NEVER_PS, PS_PER_S
from tests.engine.random_cases import Case, random_case
from tests.reference.plain import linear_costs

LONG_AFTER_PS = 100_000 * PS_PER_S


def steady_case(seed: int, **limits: Any) -> Case:
    """A random case on one replica under one setting of the knobs, with a pool given in blocks."""
    case = random_case(seed)
    blocks = case.deployment.num_blocks_override or 12 + seed % 188
    # Without the gate for whole prompts, a request larger than the pool would preempt itself forever.
    blocks = max(blocks, blocks_per_request(case))
    deployment = replace(
        case.deployment,
        **{
            "num_replicas": 1,
            "num_prefill_replicas": 0,
            "memory_limit_bytes": 2**60,
            "num_blocks_override": blocks,
            "warm_up_at_cap": False,
            **limits,
        },
    )
    tier = case.deployment.costs.first_tier
    knobs = replace(case.windows[0][1], kv_budget_fraction=1.0, quantization_tier=tier, prefill_decode_split=False)
    return Case(deployment, case.requests, ((LONG_AFTER_PS, knobs),), case.seed)


def blocks_per_request(case: Case) -> int:
    """The most blocks that any request of a case can hold."""
    tokens = int((case.requests.prompt_tokens + case.requests.output_tokens).max()) + MAX_SPECULATION_DEPTH
    return -(-min(tokens, case.deployment.max_model_len) // case.deployment.block_tokens)


def patient(requests: RequestTable) -> RequestTable:
    """The same requests from clients with unlimited patience."""
    return replace(requests, patience_ps=requests.patience_ps * 0 + NEVER_PS)


def plain_deployment(num_blocks: int = 1_000, **limits: Any) -> Deployment:
    """One replica whose iterations take 1 ms and a little per token, sequence and context."""
    costs = linear_costs(
        overhead_ps=10**9,
        per_sequence_ps=10**6,
        per_decode_token_ps=10**7,
        per_prefill_token_ps=3 * 10**6,
        per_context_token_ps=2_000,
    )
    return Deployment(costs=costs, num_blocks_override=num_blocks, memory_limit_bytes=2**60, **limits)


ONE_BY_ONE = ServingKnobs(batch_cap=1)
