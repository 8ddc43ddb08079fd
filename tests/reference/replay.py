"""Run the reference on a recorded vLLM run and name the first difference."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.recorded_runs import RecordedRun
from benchmarks.step_cost import StepCost
from llmserve_env.units import PS_PER_S

from .engine import ReferenceEngine
from .plain import PlainDeployment, PlainKnobs
from .request import Item

MICROSECOND_PS = 10**6
_LONG_AFTER_PS = 10**17


@dataclass(frozen=True, slots=True)
class ReplayedIteration:
    """What the reference did in one iteration."""

    scheduled_at_ps: int
    end_ps: int
    items: list[Item]
    free_before: int
    free_after: int
    preempted: list[int]


def replay(run: RecordedRun, cost: StepCost) -> tuple[ReferenceEngine, list[ReplayedIteration]]:
    """The whole run under its own limits, its acceptances and the given cost."""
    options = run.options
    deployment = PlainDeployment(
        costs=cost.gpu_costs(),
        block_tokens=options.block_tokens,
        max_running=options.max_running,
        token_budget=options.token_budget,
        max_model_len=options.max_model_len,
        long_prefill_threshold=options.long_prefill_threshold,
        chunked_prefill=options.chunked_prefill,
        reserve_full_prompt=options.reserve_full_prompt,
        watermark_fraction=options.watermark_fraction,
        prefix_caching=options.prefix_caching,
        async_scheduling=options.async_scheduling,
        draft_lookahead=options.draft_lookahead,
        num_blocks_override=options.num_blocks,
    )
    iterations: list[ReplayedIteration] = []

    def record(
        replica: int, at: int, start: int, end: int, items: list[Item], before: int, after: int, preempted: list[int]
    ) -> None:
        iterations.append(ReplayedIteration(at, end, items, before, after, preempted))

    engine = ReferenceEngine(deployment, run.requests, 0, run.acceptance, record)
    knobs = PlainKnobs(
        batch_cap=options.max_running,
        speculation_depth=options.speculation_depth,
        priority_routing=options.priority_policy,
    )
    for change in run.changes:
        engine.advance(knobs, change.at_ps)
        knobs = replace(knobs, batch_cap=change.max_running, token_budget=change.token_budget)
    engine.advance(knobs, _LONG_AFTER_PS)
    return engine, iterations


def first_difference(run: RecordedRun, cost: StepCost) -> str | None:
    """None when every decision, free-block count, preemption and token time is the recorded one."""
    engine, iterations = replay(run, cost)
    if len(iterations) != len(run.steps.ended_at_s):
        return f"{len(iterations)} iterations, recorded {len(run.steps.ended_at_s)}"
    for step, (ours, recorded) in enumerate(zip(iterations, _recorded_iterations(run), strict=True)):
        if (ours.items, ours.preempted) != (recorded.items, recorded.preempted):
            return f"step {step}: {ours.items} preempting {ours.preempted}, recorded {recorded}"
        if (ours.free_before, ours.free_after) != (recorded.free_before, recorded.free_after):
            return f"step {step}: free blocks {ours.free_before}, {ours.free_after}, recorded {recorded}"
        if (
            max(abs(ours.scheduled_at_ps - recorded.scheduled_at_ps), abs(ours.end_ps - recorded.end_ps))
            > MICROSECOND_PS
        ):
            return f"step {step}: scheduled {ours.scheduled_at_ps}, ended {ours.end_ps} ps, recorded {recorded}"
    for request, times_s in zip(engine.requests, run.token_times_s, strict=True):
        if len(request.token_times_ps) != len(times_s):
            return f"request {request.id}: {request.emitted} tokens, recorded {len(times_s)}"
        if np.abs(np.array(request.token_times_ps) - times_s * PS_PER_S).max() > MICROSECOND_PS:
            return f"request {request.id}: token times differ by more than a microsecond"
    return None


def _recorded_iterations(run: RecordedRun) -> list[ReplayedIteration]:
    items, steps = run.items, run.steps
    preempted: dict[int, list[int]] = {}
    for event in run.events:
        if event.event == "preempt":
            preempted.setdefault(event.step, []).append(event.request)
    columns = (items.request, items.n_tokens, items.computed_before, items.kind, items.drafts)
    all_items = [Item(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    bounds = np.searchsorted(items.step, np.arange(len(steps.ended_at_s) + 1)).tolist()
    return [
        ReplayedIteration(
            scheduled_at_ps=round(steps.scheduled_at_s[step] * PS_PER_S),
            end_ps=round(steps.ended_at_s[step] * PS_PER_S),
            items=all_items[bounds[step] : bounds[step + 1]],
            free_before=int(steps.free_blocks_before[step]),
            free_after=int(steps.free_blocks_after[step]),
            preempted=preempted.get(step, []),
        )
        for step in range(len(steps.ended_at_s))
    ]
