"""What `llmserve task check`, `tune` and `capacity` print."""

from __future__ import annotations

from llmserve_env.engine.knobs import KNOB
from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.graders.references import freeze_command, has_references
from llmserve_env.planning.answer.answer import Answer
from llmserve_env.planning.answer.text import answer_lines, capacity_lines
from llmserve_env.planning.capacity.checking import MATTERS, KnobEffect, TaskCheck
from llmserve_env.tasks.task import Task

BUSY, IDLE = 1.0, 0.3
"""Utilisation beyond which a fleet cannot carry its traffic, and below which it is mostly idle."""


def knob_value(name: str, value: float) -> str:
    """A knob's value as an operator writes it."""
    knob = KNOB[name]
    if knob.kind == "tier":
        return str(knob.wire(value))
    return ("on" if value else "off") if knob.kind == "bool" else f"{value:g}"


def check_text(task: Task, answer: Answer, found: TaskCheck) -> str:
    """What `llmserve task check` prints."""
    return "\n".join(
        [
            f"{task.id}: valid ({task.gym_id}), {task.steps} steps of {task.window_s:g} s",
            *_traffic_lines(found),
            *_load_lines(task, found),
            *answer_lines(answer),
            *(f"  knob {effect.name:<21}{_effect_text(effect)}" for effect in found.effects),
            _reference_line(task),
        ]
    )


def capacity_text(task: Task, answer: Answer) -> str:
    """What `llmserve capacity` prints."""
    title = f"{task.id}: the smallest fleet of every GPU and tier that keeps every promise"
    return "\n".join([title, *capacity_lines(answer), *answer_lines(answer)])


def tune_text(task: Task, answer: Answer) -> str:
    """What `llmserve tune` prints for a task of your own."""
    return "\n".join([f"{task.id}: the best configuration for its promises", *answer_lines(answer)])


def _traffic_lines(found: TaskCheck) -> list[str]:
    traffic = found.traffic
    classes = ", ".join(f"{name} {share:.0%}" for name, share in traffic.class_shares.items())
    return [
        f"  traffic      {traffic.mean_rps:.2f} requests/s on average, "
        f"{traffic.peak_rps:.2f} at the highest expected second; "
        f"prompts {traffic.mean_prompt_tokens:.0f}, outputs {traffic.mean_output_tokens:.0f} tokens on average",
        f"  classes      {classes}",
    ]


def _load_lines(task: Task, found: TaskCheck) -> list[str]:
    fleet = f"{task.deployment.replicas} × {task.deployment.profile}"
    return [
        f"  load {TIER_NAMES[load.tier]:<8}{load.utilisation:>6.2f} of capacity: {fleet} finishes "
        f"{load.capacity_rps:.2f} requests/s at saturation{_load_remark(load.utilisation)}"
        for load in found.loads
    ]


def _load_remark(utilisation: float) -> str:
    if utilisation > BUSY:
        return "; it cannot carry the mean load: more replicas, a lower rate_scale or trace.scale"
    return "; it is mostly idle: fewer replicas or a higher rate_scale would teach more" if utilisation < IDLE else ""


def _effect_text(effect: KnobEffect) -> str:
    if effect.span < MATTERS:
        return f"hardly matters here (less than {100 * MATTERS:g} points of the worst promise)"
    worst, best = (knob_value(effect.name, value) for value in (effect.worst_value, effect.best_value))
    return f"{100 * effect.span:.1f} points of the worst promise, from {worst} to {best}"


def _reference_line(task: Task) -> str:
    if has_references(task):
        return "  references   frozen: the task can be graded"
    return f"  references   none for this content yet: train freezes them, or run {freeze_command(task)}"
