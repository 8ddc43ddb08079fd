"""The recording behind a task: how close its generator is, and what the constant does on the recorded requests."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from llmserve_env.agents.constant import ConstantAgent
from llmserve_env.evaluation.play import play
from llmserve_env.planning.answer.answer import Followed
from llmserve_env.planning.answer.playing import followed
from llmserve_env.planning.report.controls import Setting
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
    replayed: Followed | None
    """The fleet shown on the recorded requests themselves; None for a trace too short."""


def recorded_traffic(task: Task, setting: Setting) -> RecordedTraffic | None:
    """What is known from the task's trace; None for a task without one."""
    recording = recording_of(task)
    if recording is None:
        return None
    fidelity = measure_fidelity(recording.trace, recording.fitted.spec)
    return RecordedTraffic(recording.trace, recording.notes, fidelity, _replay(setting, recording))


def _replay(setting: Setting, recording: Recording) -> Followed | None:
    """Promises on stretches of the recording itself, at the task's scale by compressing time."""
    task = setting.fleet
    needed_s = task.steps * task.window_s * recording.section.trace.scale
    slack_s = span_s(recording.trace) - needed_s
    if slack_s < 0.0:
        return None
    starts_s = np.linspace(0.0, slack_s, NUM_STRETCHES).tolist()
    stretches = [_stretch(recording, start_s, start_s + needed_s) for start_s in starts_s]
    episodes = play(ConstantAgent(setting.knobs), task, range(NUM_STRETCHES), stretches)
    return followed(task, setting.knobs, episodes, setting.objectives, setting.confidence)


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
