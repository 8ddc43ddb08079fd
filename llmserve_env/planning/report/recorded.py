"""The recording behind a task: how close its generator is, and what the constant does on the recorded requests."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from llmserve_env.agents.constant import ConstantAgent
from llmserve_env.arrays import Array
from llmserve_env.evaluation.evaluate import attained_share
from llmserve_env.evaluation.play import play
from llmserve_env.request_table import RequestTable
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.trace_workload import Recording, recording_of
from llmserve_env.units import NEVER_PS, ms_to_ps, s_to_ps
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
    recording = recording_of(task)
    if recording is None:
        return None
    fidelity = measure_fidelity(recording.trace, recording.fitted.spec)
    return RecordedTraffic(recording.trace, recording.notes, fidelity, _replay(task, recording, constant))


def _replay(task: Task, recording: Recording, constant: Array) -> float | None:
    """Attainment on stretches of the recording itself, at the task's scale by compressing time."""
    needed_s = task.steps * task.window_s * recording.section.trace.scale
    slack_s = span_s(recording.trace) - needed_s
    if slack_s < 0.0:
        return None
    starts_s = np.linspace(0.0, slack_s, NUM_STRETCHES).tolist()
    stretches = [_stretch(recording, start_s, start_s + needed_s) for start_s in starts_s]
    terms = np.array([e.trajectory.terms for e in play(ConstantAgent(constant), task, range(NUM_STRETCHES), stretches)])
    return attained_share(terms)


def _stretch(recording: Recording, start_s: float, stop_s: float) -> RequestTable:
    section = recording.section
    requests = recording.trace.to_request_table(
        acceptance=section.acceptance.base, scale=section.trace.scale, start_s=start_s, stop_s=stop_s
    )
    slo_ps = [NEVER_PS if c.ttft_slo_ms is None else ms_to_ps(c.ttft_slo_ms) for c in section.classes]
    patience_ps = [NEVER_PS if c.patience_s is None else s_to_ps(c.patience_s) for c in section.classes]
    return replace(
        requests, ttft_slo_ps=np.array(slo_ps)[requests.priority], patience_ps=np.array(patience_ps)[requests.priority]
    )
