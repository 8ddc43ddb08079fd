"""Simulate a recorded vLLM run and find the first difference from the record."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.recorded_runs import RecordedRun
from benchmarks.step_cost import StepCost
from llmserve_env.engine.deployment import MAX_RUNNING, Deployment
from llmserve_env.engine.engine import Engine
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.engine.log_layout import LOG_EMISSION, LOG_ITEM, LOG_ITERATION, LOG_PREEMPTION
from llmserve_env.request_table import RequestTable
from llmserve_env.units import PS_PER_S, PS_PER_US

_LONG_AFTER_PS = 100_000 * PS_PER_S

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions of a scheduler, iteration by iteration, as columns that are easy to compare."""

    items: Ints
    """[item, (iteration, request, tokens, computed before, drafts)], in batch order."""
    preemptions: Ints
    """[preemption, (iteration, request)]"""
    free_blocks: Ints
    """[iteration, (before scheduling, after)]"""
    times_ps: Ints
    """[iteration, (scheduled, ended)]"""
    token_requests: Ints
    """Request of each token; requests in order, tokens of one request in order."""
    token_times_ps: Ints


def recorded_engine(run: RecordedRun, cost: StepCost, *, log_rows: int = 0, caching: bool = True) -> Engine:
    """An engine with the limits, requests and draft verdicts of a recorded run; optionally without its prefix cache."""
    options = run.options
    deployment = Deployment(
        costs=cost.gpu_costs(),
        block_tokens=options.block_tokens,
        # A record that runs more requests at once than the engine can hold shows up as a difference in decisions.
        max_running=min(options.max_running, MAX_RUNNING),
        token_budget=options.token_budget,
        max_model_len=options.max_model_len,
        long_prefill_threshold=options.long_prefill_threshold,
        chunked_prefill=options.chunked_prefill,
        reserve_full_prompt=options.reserve_full_prompt,
        watermark_fraction=options.watermark_fraction,
        prefix_caching=options.prefix_caching and caching,
        async_scheduling=options.async_scheduling,
        draft_lookahead=options.draft_lookahead,
        num_blocks_override=options.num_blocks,
    )
    table = RequestTable(**{field.name: getattr(run.requests, field.name) for field in fields(RequestTable)})
    # vLLM accepts any integers as priorities; only their order matters.
    table = replace(table, priority=np.unique(table.priority, return_inverse=True)[1])
    engine = Engine(deployment, table, 0, log_rows=log_rows)
    engine.replay_acceptance(list(run.acceptance))
    return engine


def serve_all(engine: Engine, run: RecordedRun) -> NDArray[Any]:
    """Serve every request of the run; returns the request records."""
    knobs = ServingKnobs(
        batch_cap=engine.deployment.max_running,
        speculation_depth=run.options.speculation_depth,
        priority_routing=run.options.priority_policy,
    )
    for change in run.changes:
        engine.serve(knobs, change.at_ps)
        knobs = replace(knobs, batch_cap=change.max_running, token_budget=change.token_budget)
    engine.serve(knobs, _LONG_AFTER_PS)
    return engine.request_records()


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What the replay of a virtual-clock run showed beside its record."""

    difference: str | None
    """The first difference in words; None if there is none."""
    largest_time_error_ps: int
    """Largest difference between simulated and recorded token times."""


def compare(run: RecordedRun, cost: StepCost) -> ReplayResult:
    """Compare decisions, free blocks, preemptions and token times with the record; then compare a run with jumps."""
    recorded = recorded_decisions(run)
    # Twice the recorded length leaves room for a run that deviates.
    log_rows = 2 * (2 * len(recorded.items) + len(recorded.times_ps) + len(run.events)) + 1_000
    engine = recorded_engine(run, cost, log_rows=log_rows)
    stepped = serve_all(engine, run)
    count = int(engine.state.environment[0]["log_count"])
    ours = engine_decisions(engine.state.log[:count])
    difference = first_difference(ours, recorded) or _jump_difference(run, cost, stepped)
    common = min(len(ours.token_times_ps), len(recorded.token_times_ps))
    errors_ps = np.abs(ours.token_times_ps[:common] - recorded.token_times_ps[:common])
    return ReplayResult(difference, int(errors_ps.max(initial=0)))


def _jump_difference(run: RecordedRun, cost: StepCost, stepped: NDArray[Any]) -> str | None:
    """Repeat the run with closed-form jumps where they apply; first and last token times must be identical."""
    # Without shared prefixes and preemptions no cached block is hit, so the cache can be off.
    may_hit = any(event.event == "preempt" for event in run.events) or bool((run.requests.prefix_id >= 0).any())
    if run.options.async_scheduling or (run.options.prefix_caching and may_hit):
        return None
    jumped = serve_all(recorded_engine(run, cost, caching=False), run)
    for name in ("first_token_at_ps", "finished_at_ps"):
        differs = np.flatnonzero(jumped[name] != stepped[name])
        if len(differs):
            q = int(differs[0])
            return f"request {q}: {name} is {jumped[name][q]} with jumps, {stepped[name][q]} without"
    return None


def engine_decisions(log: NDArray[Any]) -> Decisions:
    """The engine's log (LOG_DTYPE) as columns."""
    kinds = log["kind"]
    # The row of an iteration comes after its items and preemptions.
    iteration = np.cumsum(kinds == LOG_ITERATION)
    kinds_used = (LOG_ITERATION, LOG_ITEM, LOG_PREEMPTION, LOG_EMISSION)
    iterations, items, preemptions, emissions = (log[kinds == kind] for kind in kinds_used)
    emissions = emissions[np.argsort(emissions["request"], kind="stable")]
    item_columns = [items[name] for name in ("request", "tokens", "computed_before", "drafts")]
    return Decisions(
        items=np.column_stack([iteration[kinds == LOG_ITEM], *item_columns]),
        preemptions=np.column_stack([iteration[kinds == LOG_PREEMPTION], preemptions["request"]]),
        free_blocks=np.column_stack([iterations["free_blocks_before"], iterations["free_blocks_after"]]),
        times_ps=np.column_stack([iterations["at_ps"], iterations["ended_at_ps"]]),
        token_requests=np.repeat(emissions["request"], emissions["tokens"]),
        token_times_ps=np.repeat(emissions["at_ps"], emissions["tokens"]),
    )


def recorded_decisions(run: RecordedRun) -> Decisions:
    """The record as the same columns."""
    items, steps = run.items, run.steps
    preempted = [(event.step, event.request) for event in run.events if event.event == "preempt"]
    times_s = np.concatenate(run.token_times_s) if run.token_times_s else np.zeros(0)
    return Decisions(
        items=np.column_stack([items.step, items.request, items.n_tokens, items.computed_before, items.drafts]),
        preemptions=np.array(preempted, np.int64).reshape(-1, 2),
        free_blocks=np.column_stack([steps.free_blocks_before, steps.free_blocks_after]).astype(np.int64),
        times_ps=_ps(np.column_stack([steps.scheduled_at_s, steps.ended_at_s])),
        token_requests=np.repeat(np.arange(len(run.token_times_s)), [len(times) for times in run.token_times_s]),
        token_times_ps=_ps(times_s),
    )


def _ps(seconds: NDArray[np.float64]) -> Ints:
    return np.rint(seconds * PS_PER_S).astype(np.int64)


def first_difference(ours: Decisions, recorded: Decisions) -> str | None:
    """Table, row and values of the first difference; times may differ by a microsecond, as floats of seconds do."""
    for name, tolerance in (
        ("items", 0),
        ("preemptions", 0),
        ("free_blocks", 0),
        ("times_ps", PS_PER_US),
        ("token_requests", 0),
        ("token_times_ps", PS_PER_US),
    ):
        a, b = getattr(ours, name), getattr(recorded, name)
        common = min(len(a), len(b))
        far = np.abs(a[:common] - b[:common]) > tolerance
        rows = np.flatnonzero(far if far.ndim == 1 else far.any(axis=1))
        if len(rows):
            row = int(rows[0])
            return f"{name} row {row}: {a[row].tolist()}, recorded {b[row].tolist()}"
        if len(a) != len(b):
            return f"{name}: {len(a)} rows, recorded {len(b)}"
    return None
