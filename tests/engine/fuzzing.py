"""Random requests and random knobs at every window: `python -m tests.engine.fuzzing SECONDS [SEED]`.

Meant to run with NUMBA_BOUNDSCHECK=1, as `test_fuzz.py` does. Prints what it covered as
JSON. A failure names the seed: `python -m tests.engine.fuzzing 0 SEED` runs that one case again.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import replace

import numpy as np

from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.engine import Engine
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.engine.layout import (
    ABANDONED,
    FINISHED,
    PENDING,
    REJECTED,
    RUNNING,
    STATUS_NAMES,
    TRANSFERRING,
    WAITING,
)
from llmserve_env.request_table import RequestTable
from llmserve_env.units import NEVER_PS, PS_PER_MS, PS_PER_S
from tests.engine.random_cases import random_case
from tests.laws.observing import counted, pools, running_ids, transferring_ids, waiting_ids

FIRST_SEED = 10_000
SHARES = ("kv_cache_occupancy", "slo_attainment", "acceptance_rate", "tier_progress", "split")


def fuzzed_engine(seed: int, rng: np.random.Generator) -> Engine:
    """A random deployment; every third time with a crowd that fills the largest batch and wraps every ring."""
    case = random_case(seed)
    deployment, requests = case.deployment, case.requests
    if rng.random() < 0.33:
        n = int(rng.integers(600, 2_500))
        prompts, outputs = rng.integers(1, 12, n), rng.integers(1, 60, n)
        requests = RequestTable.of(
            np.sort(rng.integers(0, int(rng.integers(1, 4)) * PS_PER_S, n)),
            prompts,
            outputs,
            priority=rng.integers(0, 3, n),
            ttft_slo_ps=rng.integers(1, 900, n) * PS_PER_MS,
            patience_ps=np.where(rng.random(n) < 0.5, NEVER_PS, rng.integers(1, 3_000, n) * PS_PER_MS),
            acceptance=rng.random(n),
            prefix_id=rng.integers(-1, 4, n),
            prefix_tokens=prompts // 2,
            session_id=rng.integers(-1, 50, n),
        )
        blocks = int(rng.integers(200, 3_000))
        budget = max(deployment.token_budget, int(rng.choice([600, 2_048])))
        deployment = replace(
            deployment,
            num_blocks_override=blocks,
            memory_limit_bytes=2**60,
            token_budget=budget,
            waiting_room=(int(rng.choice([5, 100_000])),) * 3,
        )
    return Engine(deployment, requests, case.seed)


def fuzzed_knobs(rng: np.random.Generator, deployment: Deployment) -> ServingKnobs:
    """Anything that an action may ask for."""
    tiers, token_budget = list(deployment.costs.tiers), deployment.token_budget
    return ServingKnobs(
        batch_cap=int(rng.choice([1, 2, int(rng.integers(1, 513)), 512])),
        kv_budget_fraction=float(rng.choice([0.1, rng.uniform(0.1, 1.0), 1.0])),
        speculation_depth=int(rng.choice([0, 0, int(rng.integers(0, 9))])) if deployment.costs.draft else 0,
        quantization_tier=int(rng.choice([tiers[0], *tiers])),
        prefill_decode_split=bool(rng.random() < 0.5),
        priority_routing=bool(rng.random() < 0.5),
        token_budget=int(rng.choice([1, int(rng.integers(1, token_budget + 1)), token_budget])),
    )


def fuzz_case(seed: int) -> Counter[str]:
    """One episode; returns what happened in it."""
    rng = np.random.default_rng(seed)
    engine = fuzzed_engine(seed, rng)
    seen: Counter[str] = Counter(cases=1)
    tokens = 0
    for _ in range(int(rng.integers(3, 25))):
        if rng.random() < 0.1:
            engine.restore(engine.snapshot())
        length_ps = int(rng.choice([0, 1, int(rng.integers(1, 400)) * PS_PER_MS, int(rng.integers(1, 4)) * PS_PER_S]))
        engine.serve(fuzzed_knobs(rng, engine.deployment), engine.now_ps + length_ps)
        tokens += counted(engine, "output_tokens")
        check(engine, tokens, length_ps)
        seen["windows"] += 1
        for name in ("iterations", "preemptions", "ooms", "reloads", "cached_tokens", "drafted_tokens"):
            seen[name] += counted(engine, name)
        seen["largest_batch"] = max(seen["largest_batch"], *(len(ids) for ids in running_ids(engine)))
    statuses = engine.request_records()["status"]
    seen.update(
        {STATUS_NAMES[status].lower(): int((statuses == status).sum()) for status in (FINISHED, REJECTED, ABANDONED)}
    )
    return seen


def check(engine: Engine, tokens: int, length_ps: int) -> None:
    """The laws that can be seen at the end of a window; docs/invariants.md numbers them."""
    records, requests = engine.request_records(), engine.state.requests[0]
    seen_at_ps = requests["arrival_at_ps"] + engine.deployment.host.front_end_ps
    expected = {
        PENDING: np.flatnonzero(seen_at_ps >= engine.now_ps).tolist(),
        RUNNING: sorted(q for ids in running_ids(engine) for q in ids),
        WAITING: sorted(q for ids in waiting_ids(engine) for q in ids),
        TRANSFERRING: sorted(transferring_ids(engine)),
    }
    for status, ids in expected.items():
        assert np.flatnonzero(records["status"] == status).tolist() == ids, f"INV-1, {STATUS_NAMES[status]}"
    assert tokens == int(records["emitted"].sum()), "INV-2"
    assert ((records["emitted"] == requests["output_tokens"]) == (records["status"] == FINISHED)).all(), "INV-2"
    for pool in pools(engine):
        assert 0 <= pool.used_blocks <= pool.num_blocks, "INV-3"
        assert pool.used_blocks + pool.free_blocks == pool.num_blocks, "INV-3"
        assert pool.references == pool.holders_of_block, "INV-3"
    served = records["first_token_at_ps"] >= 0
    assert (records["first_token_at_ps"] > requests["arrival_at_ps"])[served].all(), "INV-4"
    # A token carries the time at which its client has it.
    assert (records["first_token_at_ps"] <= engine.now_ps + engine.deployment.host.answer_ps).all(), "INV-4"
    assert 0 <= counted(engine, "busy_ps") <= engine.deployment.max_num_replicas * length_ps, "INV-6"
    metrics = engine.measure()[0]
    assert all(np.isfinite(metrics[name]).all() for name in metrics.dtype.names or ()), "metrics are finite"
    assert all(0.0 <= metrics[name] <= 1.0 for name in SHARES), "shares lie in [0, 1]"


def main() -> int:
    """Fuzz for the seconds given, at least one case."""
    seconds = float(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else FIRST_SEED
    fuzz_case(seed)
    total: Counter[str] = Counter()
    deadline = time.monotonic() + seconds
    while not total or time.monotonic() < deadline:
        try:
            seen = fuzz_case(seed)
        except BaseException:
            print(f"seed {seed} fails: python -m tests.engine.fuzzing 0 {seed}", file=sys.stderr)
            raise
        largest = max(total["largest_batch"], seen.pop("largest_batch"))
        total.update(seen)
        total["largest_batch"] = largest
        seed += 1
    print(json.dumps(total))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
