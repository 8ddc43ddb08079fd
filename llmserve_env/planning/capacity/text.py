"""Findings as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from llmserve_env.arrays import Array
from llmserve_env.engine.costs import TIER_NAMES
from llmserve_env.engine.knobs import KNOB, mapping_from_knobs, named
from llmserve_env.graders.references import freeze_command, has_references
from llmserve_env.planning.capacity.checking import MATTERS, KnobEffect, TaskCheck
from llmserve_env.planning.capacity.replicas import TierCapacity, cheapest
from llmserve_env.tasks.task import Task

BUSY, IDLE = 1.0, 0.3
"""Utilisation beyond which a fleet cannot carry its traffic, and below which it hardly works."""
SAFE_ATTAINMENT = 0.95


def knob_value(name: str, value: float) -> str:
    """A knob's value as an operator writes it."""
    knob = KNOB[name]
    if knob.kind == "tier":
        return str(knob.wire(value))
    return ("on" if value else "off") if knob.kind == "bool" else f"{value:g}"


def knobs_text(task: Task, knobs: Array) -> str:
    """The task's knobs in one line."""
    return ", ".join(f"{name} {value}" for name, value in mapping_from_knobs(knobs, task.action_knobs).items())


def check_text(task: Task, found: TaskCheck) -> str:
    """What `llmserve task check` prints."""
    return "\n".join(
        [
            f"{task.id}: valid ({task.gym_id}), {task.steps} steps of {task.window_s:g} s",
            *_traffic_lines(task, found),
            *_load_lines(task, found),
            *_promise_lines(task, found),
            *_knob_lines(task, found),
            _reference_line(task),
        ]
    )


def _traffic_lines(task: Task, found: TaskCheck) -> list[str]:
    traffic = found.traffic
    classes = ", ".join(f"{name} {share:.0%}" for name, share in traffic.class_shares.items())
    return [
        f"  traffic      {traffic.mean_rps:.2f} requests/s on average, "
        f"{traffic.peak_rps:.2f} at the highest expected second; "
        f"prompts {traffic.mean_prompt_tokens:.0f}, outputs {traffic.mean_output_tokens:.0f} tokens on average",
        f"  classes      {classes}",
    ]


def _load_lines(task: Task, found: TaskCheck) -> list[str]:
    lines = []
    fleet = f"{task.deployment.replicas} × {task.deployment.profile}"
    for load in found.loads:
        lines.append(
            f"  load {TIER_NAMES[load.tier]:<8}{load.utilisation:>6.2f} of capacity: {fleet} finishes "
            f"{load.capacity_rps:.2f} requests/s at saturation{_load_remark(load.utilisation)}"
        )
    return lines


def _load_remark(utilisation: float) -> str:
    if utilisation > BUSY:
        return "; it cannot carry the mean load: more replicas, a lower rate_scale or trace.scale"
    return "; it is mostly idle: fewer replicas or a higher rate_scale would teach more" if utilisation < IDLE else ""


def _promise_lines(task: Task, found: TaskCheck) -> list[str]:
    lines = []
    for service in task.workload.classes:
        if service.ttft_slo_ms is None:
            lines.append(f"  SLO {service.name}: none promised")
            continue
        idle = {TIER_NAMES[tier]: outcome.class_attainment[service.name] for tier, outcome in found.idle.items()}
        shares = ", ".join(f"{name} {share:.1%}" for name, share in idle.items())
        verdict = "feasible" if max(idle.values()) >= SAFE_ATTAINMENT else "NOT feasible for most requests: raise it"
        lines.append(
            f"  SLO {service.name}: first token within {service.ttft_slo_ms:g} ms; kept on an empty fleet: {shares} "
            f"({verdict}); under this load {found.defaults.class_attainment[service.name]:.1%} with default knobs, "
            f"{found.best.class_attainment[service.name]:.1%} with the best constant of a short search"
        )
    return lines


def _knob_lines(task: Task, found: TaskCheck) -> list[str]:
    lines = [f"  best constant of a short search: {knobs_text(task, found.best_knobs)}"]
    for effect in sorted(found.effects, key=lambda e: -e.span):
        lines.append(f"  knob {effect.name:<21}{effect.span:>6.3f} reward per step{_effect_remark(effect)}")
    return lines


def _effect_remark(effect: KnobEffect) -> str:
    if effect.span < MATTERS:
        return " between its best and worst value: hardly matters here"
    rewards = [outcome.reward for outcome in effect.outcomes]
    worst = effect.values[rewards.index(min(rewards))]
    return f" from {knob_value(effect.name, worst)} to {knob_value(effect.name, effect.best_value)}"


def _reference_line(task: Task) -> str:
    if has_references(task):
        return "  references   frozen: the task can be graded"
    return (
        f"  references   none for this content yet: tune, train and report freeze them, or run {freeze_command(task)}"
    )


def capacity_text(task: Task, found: Sequence[TierCapacity]) -> str:
    """What `llmserve capacity` prints."""
    head = f"{'GPU':<24}{'tier':<6}{'GPUs':>5}{'USD/h':>9}{'USD/M tokens':>14}{'SLO kept':>10}  knobs"
    lines = [f"{task.id}: GPUs that keep every class's SLO for {found[0].target:.1%} of its requests", head]
    for one in found:
        gpu = one.profile.split(".")[0]
        if one.answer is None:
            best = one.points[-1]
            lines.append(f"{gpu:<24}{one.tier_name:<6}{'–':>5}  not with {best.replicas}: {best.attainment:.1%} kept")
            continue
        answer = one.answer
        remark = "" if one.is_monotone else "  (not monotone: every smaller fleet was simulated)"
        lines.append(
            f"{gpu:<24}{one.tier_name:<6}{answer.replicas:>5}{answer.gpu_usd_per_hour:>9.2f}"
            f"{answer.usd_per_million_output_tokens:>14.3f}{answer.attainment:>10.1%}  "
            f"{_short_knobs(answer.knobs)}{remark}"
        )
    best_one = cheapest(found)
    if best_one is None or best_one.answer is None:
        return "\n".join([*lines, "no fleet of this size keeps the promise: raise --max-replicas or the SLO"])
    answer = best_one.answer
    return "\n".join(
        [
            *lines,
            f"cheapest: {answer.replicas} × {best_one.profile} at {best_one.tier_name}, "
            f"{answer.gpu_usd_per_hour:.2f} USD/h",
        ]
    )


def _short_knobs(values: Array) -> str:
    knobs = named(values)
    order = "priority" if knobs["priority_routing"] else "fcfs"
    return f"batch {knobs['batch_cap']:g}, drafts {knobs['speculation_depth']:g}, {order}"
