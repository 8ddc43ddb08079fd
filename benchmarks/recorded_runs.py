"""Recorded runs of the real vLLM scheduler and engine: a truth directory as typed data.

A set is a folder with `runs.json` and `steps`, `items`, `events` and `requests` as Parquet files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.recorded_options import EngineOptions, LimitChange, engine_options, limit_changes, require
from benchmarks.step_cost import StepCost
from llmserve_env.units import NEVER_PS, PS_PER_S


@dataclass(frozen=True, slots=True)
class RecordedRequests:
    """The request table of a run, with the columns that the engine reads."""

    arrival_at_ps: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    priority: NDArray[np.int64]
    tenant: NDArray[np.int64]
    ttft_slo_ps: NDArray[np.int64]
    patience_ps: NDArray[np.int64]
    acceptance: NDArray[np.float64]
    prefix_id: NDArray[np.int64]
    prefix_tokens: NDArray[np.int64]
    session_id: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RecordedItems:
    """What each iteration did, one row per request and iteration, in batch order."""

    step: NDArray[np.int64]
    request: NDArray[np.int64]
    n_tokens: NDArray[np.int64]
    computed_before: NDArray[np.int64]
    kind: NDArray[np.int64]
    drafts: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RecordedSteps:
    """One row per iteration; times in seconds."""

    scheduled_at_s: NDArray[np.float64]
    started_at_s: NDArray[np.float64]
    ended_at_s: NDArray[np.float64]
    """Tokens of the iteration carry this time."""
    updated_at_s: NDArray[np.float64]
    num_running_before: NDArray[np.int64]
    num_sequences: NDArray[np.int64]
    decode_tokens: NDArray[np.int64]
    decode_context_tokens: NDArray[np.int64]
    prefill_tokens: NDArray[np.int64]
    prefill_pairs: NDArray[np.int64]
    free_blocks_before: NDArray[np.int64]
    free_blocks_after: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """A preemption (while scheduling the step) or a finish (with the step's output)."""

    step: int
    request: int
    event: str


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run: what went in, and everything that came out."""

    name: str
    options: EngineOptions
    changes: tuple[LimitChange, ...]
    """Limits that were changed while the run went on."""
    cost: StepCost | None
    """The exact cost of a virtual-clock run; None where a real engine ran."""
    requests: RecordedRequests
    items: RecordedItems
    steps: RecordedSteps
    events: tuple[RecordedEvent, ...]
    token_times_s: tuple[NDArray[np.float64], ...]
    acceptance: tuple[NDArray[np.uint8], ...]
    """Per request and output position: 1 where the token was an accepted draft."""


def load_runs(directory: Path, unreadable: dict[str, str] | None = None) -> list[RecordedRun]:
    """Every run of one recorded set, in the order of `runs.json`.

    A run that cannot be understood raises ValueError, or, where `unreadable` is given, is left out and
    entered there by name with the reason.
    """
    descriptions = json.loads((directory / "runs.json").read_text())
    tables = {name: pq.read_table(directory / f"{name}.parquet") for name in ("steps", "items", "events", "requests")}
    runs = []
    for description in descriptions:
        name = description["run"]
        columns = {}
        for table, data in tables.items():
            rows = data.filter(pc.equal(data["run"], name)).drop_columns("run")
            columns[table] = {column: rows[column].to_numpy() for column in rows.column_names}
        try:
            runs.append(_run(description, columns))
        except ValueError as error:
            if unreadable is None:
                raise
            unreadable[name] = str(error)
    return runs


def _run(description: dict[str, Any], columns: dict[str, dict[str, NDArray[Any]]]) -> RecordedRun:
    options = engine_options(description)
    events, requests = columns["events"], columns["requests"]
    require(bool((requests["req"] == np.arange(len(requests["req"]))).all()), description, "requests are not 0..n-1")
    token_times_s = tuple(np.asarray(times, dtype=np.float64) for times in requests["token_times"])
    return RecordedRun(
        name=description["run"],
        options=options,
        changes=limit_changes(description),
        cost=_cost(description["cost"]) if "cost" in description else None,
        requests=_requests(requests),
        items=_items(columns["items"]),
        steps=_steps(columns["steps"]),
        events=tuple(
            RecordedEvent(int(step), int(request), str(event))
            for step, request, event in zip(events["step"], events["req"], events["event"], strict=True)
        ),
        token_times_s=token_times_s,
        acceptance=tuple(_acceptance(times) for times in token_times_s),
    )


def _cost(cost: dict[str, float]) -> StepCost:
    return StepCost(
        overhead_ps=_exact_ps(cost["base"]),
        per_sequence_ps=0,
        per_decode_token_ps=_exact_ps(cost["per_dec"]),
        per_prefill_token_ps=_exact_ps(cost["per_pf"]),
        per_context_token_ps=_exact_ps(cost["per_ctx"]),
        per_prefill_pair_ps=_exact_ps(cost["per_pfwork"]),
    )


def _exact_ps(seconds: float) -> int:
    ps = round(seconds * PS_PER_S)
    if abs(seconds * PS_PER_S - ps) > 1e-3:
        raise ValueError(f"a recorded cost of {seconds} s is no whole number of picoseconds")
    return ps


def _requests(columns: dict[str, NDArray[Any]]) -> RecordedRequests:
    num_requests = len(columns["req"])
    none = np.full(num_requests, -1, dtype=np.int64)
    zeros = np.zeros(num_requests, dtype=np.int64)
    never = np.full(num_requests, NEVER_PS, dtype=np.int64)
    return RecordedRequests(
        arrival_at_ps=np.rint(columns["arrival"] * PS_PER_S).astype(np.int64),
        prompt_tokens=columns["prompt_len"].astype(np.int64),
        output_tokens=columns["out_len"].astype(np.int64),
        priority=columns["priority"].astype(np.int64),
        tenant=zeros,
        ttft_slo_ps=never,
        patience_ps=never,
        acceptance=np.zeros(num_requests, dtype=np.float64),
        prefix_id=columns["prefix_id"].astype(np.int64) if "prefix_id" in columns else none,
        prefix_tokens=columns["prefix_len"].astype(np.int64) if "prefix_len" in columns else zeros,
        session_id=none,
    )


def _items(columns: dict[str, NDArray[Any]]) -> RecordedItems:
    order = np.lexsort((columns["pos"], columns["step"]))

    def column(name: str) -> NDArray[np.int64]:
        return columns[name][order].astype(np.int64)

    return RecordedItems(
        step=column("step"),
        request=column("req"),
        n_tokens=column("n_tokens"),
        computed_before=column("computed_before"),
        kind=column("kind"),
        drafts=column("spec"),
    )


def _steps(columns: dict[str, NDArray[Any]]) -> RecordedSteps:
    virtual = "t_start" in columns
    return RecordedSteps(
        scheduled_at_s=columns["t_sched"],
        started_at_s=columns["t_start" if virtual else "t_sched_end"],
        ended_at_s=columns["t_end" if virtual else "t_exec_end"],
        updated_at_s=columns["t_end" if virtual else "t_update_end"],
        num_running_before=columns["running_before"],
        num_sequences=columns["prefill_reqs"] + columns["decode_reqs"],
        decode_tokens=columns["decode_tokens"],
        decode_context_tokens=columns["decode_ctx"],
        prefill_tokens=columns["prefill_tokens"],
        prefill_pairs=columns["prefill_work"],
        free_blocks_before=columns["free_before"],
        free_blocks_after=columns["free_after"],
    )


def _acceptance(token_times_s: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Tokens of one iteration carry one time; all but the last of them were accepted drafts."""
    accepted = np.zeros(len(token_times_s), dtype=np.uint8)
    accepted[:-1] = token_times_s[1:] == token_times_s[:-1]
    return accepted
