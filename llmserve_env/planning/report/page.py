"""The report as one HTML file that needs nothing else: no scripts, no fonts, no pictures from elsewhere."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from llmserve_env.evaluation.markup import bullets, cards, page, paragraph
from llmserve_env.planning.capacity.replicas import cheapest
from llmserve_env.planning.report.gather import BEST_CONSTANT, DEFAULTS, ControlResult, ReportData
from llmserve_env.planning.report.sections import (
    capacity_section,
    control_section,
    flags_section,
    made_section,
    policy_section,
    timeline_section,
)
from llmserve_env.planning.report.traffic_section import traffic_section

SECTIONS = (
    ("traffic", "Traffic"),
    ("capacity", "Capacity and cost"),
    ("controls", "Static or adaptive"),
    ("timeline", "One episode"),
    ("policy", "What the policy does when"),
    ("flags", "vLLM flags"),
    ("made", "How this was made"),
)


def report_page(data: ReportData, command: str) -> str:
    """The whole page."""
    task = data.task
    style = files("llmserve_env.planning.report").joinpath("style.css").read_text(encoding="utf-8")
    links = "".join(f'<a href="#{name}">{escape(title)}</a>' for name, title in SECTIONS)
    body = "\n".join(
        [
            f"<h1>{escape(task.name)}</h1>",
            paragraph(task.description, "soft") if task.description else "",
            paragraph(headline(data), "lead"),
            summary_cards(data),
            f"<nav>{links}</nav>",
            bullets(advice(data)),
            traffic_section(data),
            capacity_section(data),
            control_section(data),
            timeline_section(data),
            policy_section(data),
            flags_section(data),
            made_section(data, command),
        ]
    )
    return page(f"{task.name}: serving report", style, body)


def headline(data: ReportData) -> str:
    """The answer in two sentences."""
    best = cheapest(data.capacity)
    target = f"{data.options.target:.0%}"
    if best is None or best.answer is None:
        largest = data.capacity[0].points[-1].replicas
        first = f"No fleet of up to {largest} GPUs keeps the promised first-token times for {target} of every class."
    else:
        answer = best.answer
        noun, verb = ("GPU", "keeps") if answer.replicas == 1 else ("GPUs", "keep")
        first = (
            f"{answer.replicas} {gpu_name(data)} {noun} at {best.tier_name} {verb} the promised first-token times for "
            f"{target} of every class, for {answer.gpu_usd_per_hour:.2f} USD per hour."
        )
    constant, adaptive = data.control(BEST_CONSTANT), data.adaptive
    return f"{first} {_comparison(data, constant, adaptive)}"


def _comparison(data: ReportData, constant: ControlResult, adaptive: ControlResult) -> str:
    fleet = f"On the task's {data.task.deployment.replicas} × {gpu_name(data)}"
    kept = f"{constant.outcome.slo_attainment:.1%}"
    gain = adaptive.score.mean - constant.score.mean
    if gain <= 0.0:
        return f"{fleet} the best constant setting keeps {kept}; adapting (`{adaptive.name}`) gains nothing on top."
    saved = 1.0 - adaptive.outcome.cost_usd_per_hour / constant.outcome.cost_usd_per_hour
    bill = f"{abs(saved):.0%} {'less' if saved > 0 else 'more'} billed"
    return (
        f"{fleet} the best constant setting keeps {kept}; the adaptive policy `{adaptive.name}` keeps "
        f"{adaptive.outcome.slo_attainment:.1%} with {bill} (score {adaptive.score.mean:.2f} against "
        f"{constant.score.mean:.2f})."
    )


def gpu_name(data: ReportData) -> str:
    """The card in short."""
    return data.task.deployment.profile.split(".")[0].upper()


def summary_cards(data: ReportData) -> str:
    """The figures a reader looks for first."""
    traffic, defaults, constant = data.check.traffic, data.control(DEFAULTS), data.control(BEST_CONSTANT)
    best = cheapest(data.capacity)
    answer = best.answer if best else None
    gpus = f"{answer.replicas} × {best.tier_name}" if best and answer else "none"
    cost = f"${answer.usd_per_million_output_tokens:.2f}" if answer else "–"
    return cards(
        [
            (f"{traffic.mean_rps:.1f} req/s", f"mean traffic, peaks of {traffic.peak_rps:.1f}"),
            (gpus, f"GPUs for {data.options.target:.0%} within SLO, cheapest tier"),
            (cost, "GPU cost per million output tokens at that size"),
            (f"{defaults.outcome.slo_attainment:.1%}", "within SLO with the default knobs"),
            (f"{constant.outcome.slo_attainment:.1%}", "within SLO with the best constant"),
            (f"{data.adaptive.outcome.slo_attainment:.1%}", f"within SLO with `{data.adaptive.name}`"),
        ]
    )


def advice(data: ReportData) -> list[str]:
    """What to do, in order of effect."""
    said = []
    effects = sorted(data.check.effects, key=lambda effect: -effect.span)
    said.append(f"Set first: {', '.join(f'`{effect.name}`' for effect in effects[:3])}; they move the outcome most.")
    load = data.check.loads[0]
    said.append(
        f"Mean load is {load.utilisation:.2f} of what the task's fleet finishes at FP16 "
        f"({load.capacity_rps:.1f} requests/s at saturation)."
    )
    infeasible = [c.name for c in data.task.workload.classes if c.ttft_slo_ms is not None and not _can(data, c.name)]
    if infeasible:
        said.append(f"Even an empty fleet misses the SLO of {', '.join(infeasible)} too often: it has to be raised.")
    said.append(data.adaptive_reason)
    return said


def _can(data: ReportData, name: str) -> bool:
    return any(data.check.feasible(tier, name, data.options.target) for tier in data.check.idle)
