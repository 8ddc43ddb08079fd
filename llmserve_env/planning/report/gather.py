"""Simulate what a report shows: the answer, how it holds when things change, and what adapting adds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llmserve_env.arrays import Array
from llmserve_env.evaluation.report import commit_of
from llmserve_env.evaluation.runner import Runner, Threads
from llmserve_env.planning.answer.answer import Answer, Followed
from llmserve_env.planning.answer.objectives import objectives_of
from llmserve_env.planning.answer.protocol import Protocol
from llmserve_env.planning.answer.store import answer_for
from llmserve_env.planning.capacity.checking import TaskCheck, check_task
from llmserve_env.planning.report.controls import Controls, Setting, measure_controls
from llmserve_env.planning.report.recorded import RecordedTraffic, recorded_traffic
from llmserve_env.planning.report.sensitivity import Sensitivity, measure_sensitivity
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import on_fleet

NUM_SENSITIVITY_SEEDS = 8


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything that the page shows."""

    task: Task
    answer: Answer
    check: TaskCheck
    fleet: Task
    """The task on the fleet that the page describes: the recommended one, or its own where none is recommended."""
    knobs: Array
    """The configuration of that fleet."""
    shown: Followed
    """How that fleet and configuration did on fresh traffic."""
    controls: Controls
    sensitivity: Sensitivity
    recorded: RecordedTraffic | None
    commit: str

    @property
    def is_recommended(self) -> bool:
        """Whether the fleet shown is a recommended one."""
        return self.answer.recommended is not None


def gather(task: Task, protocol: Protocol | None = None, runner: Runner | None = None) -> ReportData:
    """Simulate the whole report; the answer of a task of your own is stored beside it and used again."""
    runner, protocol = runner or Threads(), protocol or Protocol()
    answer = answer_for(task, protocol, runner)
    check = check_task(task, answer, protocol, runner)
    shown = answer.recommended or answer.own
    fleet = on_fleet(task, shown.replicas, shown.profile)
    knobs = fleet.knobs_from_mapping(shown.knobs)
    seeds, objectives = protocol.fresh_seeds(answer.rounds), objectives_of(task, protocol.target)
    search_seeds = protocol.search_seeds(answer.rounds)
    setting = Setting(fleet, knobs, seeds, search_seeds, objectives, protocol.confidence, runner)
    return ReportData(
        task=task,
        answer=answer,
        check=check,
        fleet=fleet,
        knobs=knobs,
        shown=shown,
        controls=measure_controls(setting, f"llmserve train {task.typed_name}"),
        sensitivity=measure_sensitivity(
            fleet, knobs, seeds[:NUM_SENSITIVITY_SEEDS], objectives, protocol.confidence, runner
        ),
        recorded=recorded_traffic(task, setting),
        commit=commit_of(Path(__file__).resolve().parent),
    )
