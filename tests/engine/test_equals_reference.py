"""The compiled engine equals the plain-Python reference, to the picosecond, with every knob turning in mid-flight."""

from __future__ import annotations

import os
from typing import Any

import pytest

from llmserve_env.engine.engine import Engine
from llmserve_env.engine.layout import PENDING, STATUS_NAMES
from tests.engine.random_cases import Case, random_case
from tests.reference.engine import ReferenceEngine

# As plain Python a case takes half a second.
JIT_IS_OFF = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
CASES, STEPPED_CASES = (50, 25) if JIT_IS_OFF else (400, 100)
COUNTERS = (
    "finished",
    "rejected",
    "abandoned",
    "preemptions",
    "ooms",
    "output_tokens",
    "prefill_tokens",
    "drafted_tokens",
    "accepted_tokens",
    "iterations",
)


def observed(engine: Engine, totals: dict[str, int]) -> dict[str, Any]:
    """What the engine shows after a window, as plain data."""
    records = engine.request_records()
    replicas = engine.state.replicas[0]
    return {
        "status": [STATUS_NAMES[s] for s in records["status"]],
        "first": records["first_token_at_ps"].tolist(),
        "finished_at": records["finished_at_ps"].tolist(),
        "emitted": records["emitted"].tolist(),
        "preemptions": records["preemptions"].tolist(),
        "running": [r["batch"]["request"][: r["num_running"]].tolist() for r in replicas],
        "num_waiting": replicas["num_waiting"].tolist(),
        "used_blocks": replicas["used_blocks"].tolist(),
        "tier": replicas["tier"].tolist(),
        "totals": dict(totals),
    }


def expected(reference: ReferenceEngine) -> dict[str, Any]:
    """The same of the reference."""
    return {
        "status": [str(getattr(r.status, "name", r.status)) for r in reference.requests],
        "first": [r.first_token_at_ps for r in reference.requests],
        "finished_at": [r.finished_at_ps for r in reference.requests],
        "emitted": [r.emitted for r in reference.requests],
        "preemptions": [r.preemptions for r in reference.requests],
        "running": [list(r.running_ids) for r in reference.replicas],
        "num_waiting": [len(r.waiting_ids) for r in reference.replicas],
        "used_blocks": [r.held_blocks for r in reference.replicas],
        "tier": [r.tier for r in reference.replicas],
        "totals": {name: getattr(reference.counters, name) for name in COUNTERS},
    }


def difference(case: Case, step_every_iteration: bool = False) -> str | None:
    """The first window and field in which the two engines differ."""
    engine = Engine(case.deployment, case.requests, case.seed, step_every_iteration=step_every_iteration)
    reference = ReferenceEngine(case.deployment, case.requests, case.seed)
    totals = dict.fromkeys(COUNTERS, 0)
    for number, (until_ps, knobs) in enumerate(case.windows):
        engine.serve(knobs, until_ps)
        reference.advance(knobs, until_ps)
        for name in COUNTERS:
            totals[name] += int(engine.state.window[0][name])
        got, want = observed(engine, totals), expected(reference)
        for name in want:
            if got[name] != want[name]:
                return f"window {number} until {until_ps}, {name}: engine {got[name]}, reference {want[name]}"
    return None


@pytest.mark.parametrize("first", range(0, CASES, 25))
def test_engine_equals_reference_on_random_cases(first: int) -> None:
    differences = {seed: difference(random_case(seed)) for seed in range(first, first + 25)}
    assert {seed: text for seed, text in differences.items() if text} == {}


@pytest.mark.parametrize("first", range(1000, 1000 + STEPPED_CASES, 25))
def test_jumping_equals_stepping_every_iteration(first: int) -> None:
    differences = {seed: difference(random_case(seed), step_every_iteration=True) for seed in range(first, first + 25)}
    assert {seed: text for seed, text in differences.items() if text} == {}


def books(case: Case, step_every_iteration: bool) -> list[bytes]:
    """Everything counted in each window, inter-token gaps and busy time included."""
    engine = Engine(case.deployment, case.requests, case.seed, step_every_iteration=step_every_iteration)
    found = []
    for until_ps, knobs in case.windows:
        engine.serve(knobs, until_ps)
        found.append(engine.state.window[0].tobytes())
    return found


@pytest.mark.parametrize("first", range(2000, 2000 + CASES, 100))
def test_jumping_counts_what_stepping_every_iteration_counts(first: int) -> None:
    cases = {seed: random_case(seed) for seed in range(first, first + min(100, CASES))}
    assert [seed for seed, case in cases.items() if books(case, False) != books(case, True)] == []


@pytest.mark.skipif(JIT_IS_OFF, reason="about the cases, not about how the kernels run")
def test_random_cases_exercise_every_mechanism() -> None:
    """Guard against vacuity: over the cases above, everything that can happen does."""
    seen = dict.fromkeys((*COUNTERS, "reloads", "cached_tokens"), 0)
    unfinished = 0
    for seed in range(120):
        case = random_case(seed)
        engine = Engine(case.deployment, case.requests, case.seed)
        for until_ps, knobs in case.windows:
            engine.serve(knobs, until_ps)
            for name in seen:
                seen[name] += int(engine.state.window[0][name])
        unfinished += int((engine.request_records()["status"] == PENDING).sum())
    assert all(count > 0 for count in seen.values()), seen
