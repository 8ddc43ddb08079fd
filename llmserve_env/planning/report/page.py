"""The report as one HTML file that needs nothing else: no scripts, no fonts, no pictures from elsewhere."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from llmserve_env.engine.tiers import tier_name
from llmserve_env.evaluation.markup import bullets, cards, page, paragraph
from llmserve_env.planning.answer.answer import Configured
from llmserve_env.planning.answer.text import knobs_in_words, no_fleet_text
from llmserve_env.planning.capacity.checking import MATTERS
from llmserve_env.planning.report.control_sections import (
    adaptive_text,
    control_section,
    policy_section,
    timeline_section,
)
from llmserve_env.planning.report.gather import ReportData
from llmserve_env.planning.report.sections import (
    capacity_section,
    flags_section,
    made_section,
    promise_section,
    sensitivity_section,
)
from llmserve_env.planning.report.traffic_section import traffic_section

SECTIONS = (
    ("traffic", "Traffic"),
    ("capacity", "Capacity and cost"),
    ("promises", "Promises"),
    ("sensitivity", "If traffic or fleet change"),
    ("controls", "Constant or adaptive"),
    ("timeline", "One episode"),
    ("policy", "What the policy changes"),
    ("flags", "Start it"),
    ("made", "How this was made"),
)

ABOUT_THE_FLEET = {
    "sensitivity": sensitivity_section,
    "controls": control_section,
    "timeline": timeline_section,
    "policy": policy_section,
    "flags": flags_section,
}
"""Sections that say how to run the recommended fleet, in order; without one there is nothing to start."""


def report_page(data: ReportData, command: str) -> str:
    """The whole page."""
    task, is_recommended = data.task, data.is_recommended
    style = files("llmserve_env.planning.report").joinpath("style.css").read_text(encoding="utf-8")
    shown = [(name, title) for name, title in SECTIONS if is_recommended or name not in ABOUT_THE_FLEET]
    links = "".join(f'<a href="#{name}">{escape(title)}</a>' for name, title in shown)
    body = "\n".join(
        [
            f"<h1>{escape(task.name)}</h1>",
            paragraph(task.description, "soft") if task.description else "",
            paragraph(headline(data), "lead"),
            *(paragraph(text, "warning") for text in warnings(data)),
            summary_cards(data),
            f"<nav>{links}</nav>",
            bullets(advice(data)),
            traffic_section(data),
            capacity_section(data),
            promise_section(data),
            *(part(data) for part in ABOUT_THE_FLEET.values() if is_recommended),
            made_section(data, command),
        ]
    )
    return page(f"{task.name}: serving report", style, body)


def gpus_text(fleet: Configured) -> str:
    """Number and kind of a fleet's GPUs, and their precision."""
    return f"{fleet.replicas} {fleet.gpu.upper()} {'GPU' if fleet.replicas == 1 else 'GPUs'} at {fleet.tier_name}"


def headline(data: ReportData) -> str:
    """The answer, as it came out on fresh traffic."""
    best = data.answer.recommended
    if best is None:
        return f"No fleet can be recommended: {no_fleet_text(data.answer)}."
    kept = f"{best.worst.text}: {best.worst.value_text}"
    if len(best.promises) > 1:
        kept = f"the tightest of {len(best.promises)} is {kept}"
    how = "every promise is kept on fresh traffic" if best.is_kept else "NOT every promise is kept on fresh traffic"
    what = f"{gpus_text(best)} with {knobs_in_words(best.knobs)}"
    return f"Run {what}, for {best.usd_per_hour:.2f} USD per hour: {how} ({kept})."


def warnings(data: ReportData) -> list[str]:
    """Warnings at the top of the page."""
    answer, said = data.answer, []
    said += [f"{text}." for text in answer.impossible]
    if not answer.is_own_fleet_enough:
        broken = "; ".join(f"{one.text}: {one.value_text}" for one in answer.own.promises if not one.is_kept)
        remedy = f" {gpus_text(answer.recommended)} would." if answer.recommended else ""
        said.append(
            f"The task's own fleet, {gpus_text(answer.own)}, does not keep its promises even with its best "
            f"configuration ({broken}).{remedy}"
        )
    if answer.recommended is not None and not answer.recommended.is_kept:
        said.append("The recommended fleet broke a promise on fresh traffic: take one GPU more, or use more seeds.")
    return said


def summary_cards(data: ReportData) -> str:
    """The figures a reader looks for first."""
    traffic, answer = data.check.traffic, data.answer
    best = answer.recommended
    own = [
        (f"{answer.own.worst.kept_share:.1%}", f"worst promise kept on the task's own fleet ({gpus_text(answer.own)})"),
        (f"{answer.vllm_defaults.worst.kept_share:.1%}", "the same with vLLM's defaults"),
    ]
    if best is None:
        return cards([(f"{traffic.mean_rps:.1f} req/s", f"mean traffic, peaks of {traffic.peak_rps:.1f}"), *own])
    return cards(
        [
            (f"{traffic.mean_rps:.1f} req/s", f"mean traffic, peaks of {traffic.peak_rps:.1f}"),
            (f"{best.replicas} × {best.tier_name}", "cheapest fleet that keeps every promise"),
            (f"${best.usd_per_hour:.2f}/h", "for its GPUs"),
            (f"${best.usd_per_million_output_tokens:.2f}", "GPU cost per million output tokens at this load"),
            *own,
        ]
    )


def advice(data: ReportData) -> list[str]:
    """What to know, in order of effect."""
    said = []
    effects = [effect for effect in data.check.effects if effect.span >= MATTERS][:3]
    if effects:
        names = ", ".join(f"`{effect.name}`" for effect in effects)
        said.append(f"On the task's own fleet, set first: {names}; they change the worst promise most.")
    load = data.check.loads[0]
    said.append(
        f"The mean load is {load.utilisation:.0%} of what the task's own fleet can finish at {tier_name(load.tier)}, "
        f"which is {load.capacity_rps:.1f} requests/s at saturation."
    )
    if data.is_recommended:
        said.append(f"Adapting: {adaptive_text(data.controls)}")
    return said
