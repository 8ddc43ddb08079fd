"""The recording behind a task: how close its generator is, and what the constant does on the recorded requests."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.request_table import RequestTable
from llmserve_env.tasks.files import FieldLines, names_trace, read_mapping
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.trace_workload import TracedTraffic, TraceWorkload, read_section, traced_traffic
from llmserve_env.units import NEVER_PS, s_to_ps
from llmserve_env.workloads.traces.fidelity import Fidelity, measure_fidelity
from llmserve_env.workloads.traces.statistics import span_s
from llmserve_env.workloads.traces.trace import Trace

NUM_STRETCHES = 4
"""Stretches of the recording that are replayed, evenly spread over it."""


@dataclass(frozen=True, slots=True)
class RecordedTraffic:
    """A trace beside its generator."""

    trace: Trace
    notes: tuple[str, ...]
    fidelity: Fidelity
    replayed_attainment: float | None
    """Share of the recorded requests that meet their SLO under the best constant; None for a trace too short."""


def recorded_traffic(task: Task, constant: Array) -> RecordedTraffic | None:
    """What is known from the task's trace; None for a task without one."""
    if task.file is None or not names_trace(data := read_mapping(task.file)):
        return None
    section = read_section(data, task.file, FieldLines(task.file))
    traffic = traced_traffic(section, task.file, str(task.file))
    fidelity = measure_fidelity(traffic.trace, traffic.fitted.spec)
    return RecordedTraffic(traffic.trace, traffic.notes, fidelity, _replay(task, section, traffic, constant))


def _replay(task: Task, section: TraceWorkload, traffic: TracedTraffic, constant: Array) -> float | None:
    """Attainment on stretches of the recording itself, at the task's scale by compressing time."""
    needed_s = task.steps * task.window_s * section.trace.scale
    slack_s = span_s(traffic.trace) - needed_s
    if slack_s < 0.0:
        return None
    batch = EpisodeBatch.simulated(task, NUM_STRETCHES)
    for index, start_s in enumerate(np.linspace(0.0, slack_s, NUM_STRETCHES).tolist()):
        table = _table(section, traffic.trace, start_s, start_s + needed_s)
        batch.simulation.load(index, table, index)
        batch.start(index)
    met = judged = 0.0
    for _ in range(task.steps):
        batch.step(np.tile(constant, (NUM_STRETCHES, 1)))
        met += float((batch.terms["slo"] * batch.terms["offered"]).sum())
        judged += float(batch.terms["offered"].sum())
    return met / judged if judged else None


def _table(section: TraceWorkload, trace: Trace, start_s: float, stop_s: float) -> RequestTable:
    table = trace.to_request_table(
        acceptance=section.acceptance.base, scale=section.trace.scale, start_s=start_s, stop_s=stop_s
    )
    slo_ps = [NEVER_PS if c.ttft_slo_ms is None else round(c.ttft_slo_ms * 1e9) for c in section.classes]
    patience_ps = [NEVER_PS if c.patience_s is None else s_to_ps(c.patience_s) for c in section.classes]
    return replace(
        table, ttft_slo_ps=np.array(slo_ps)[table.priority], patience_ps=np.array(patience_ps)[table.priority]
    )
