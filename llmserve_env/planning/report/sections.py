"""The sections of the report about the fleet and its control, each from simulated data to markup."""

from __future__ import annotations

from functools import partial
from html import escape

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.costs import TIER_NAMES
from llmserve_env.engine.knobs import NAMES, named
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.evaluation.markup import bullets, grid, html_table, inline, paragraph, picture, section
from llmserve_env.planning.capacity.replicas import TierCapacity, cheapest
from llmserve_env.planning.capacity.text import knob_value
from llmserve_env.planning.report.charts import (
    Series,
    draw_capacity,
    draw_effects,
    draw_fleet_pareto,
    draw_over_time,
    draw_pareto,
    svg_uri,
)
from llmserve_env.planning.report.flags import vllm_command, vllm_flags
from llmserve_env.planning.report.gather import ControlResult, ReportData
from llmserve_env.planning.report.policy import sentences, traffic_levels
from llmserve_env.planning.tuning.constants import Outcome
from llmserve_env.request_outcomes import latency_text
from llmserve_env.units import S_PER_HOUR
from llmserve_env.version import ENVIRONMENT_VERSION, PACKAGE_VERSION


def capacity_section(data: ReportData) -> str:
    """How many GPUs, at what price."""
    best = cheapest(data.capacity)
    chosen = None if best is None else list(data.capacity).index(best)
    return section(
        "capacity",
        "Capacity and cost at the SLO",
        paragraph(
            f"The smallest fleet whose every class gets its first token in time for {data.options.target:.0%} of "
            "requests, per precision, with the best of several batch caps, drafts and orders of service."
        ),
        html_table(
            ["tier", "GPUs", "USD/h", "USD/M output tokens", "within SLO", "TTFT p50", "TTFT p99", "TPOT p50"],
            [_capacity_row(one) for one in data.capacity],
            chosen=chosen,
        ),
        grid(
            picture(svg_uri(draw_capacity(data.capacity)), "SLO over fleet size", "Fleets that were simulated."),
            picture(svg_uri(draw_fleet_pareto(data.capacity)), "Cost against SLO", "No fleet on the line is beaten."),
        ),
        paragraph(
            "Found by bisection; the neighbours of each answer are simulated too"
            + ("." if all(one.is_monotone for one in data.capacity) else ", and where more GPUs did worse, every size.")
            + " Percentiles are of all requests; `lost` means that the request of that rank was never answered.",
            "note",
        ),
    )


def _capacity_row(one: TierCapacity) -> list[str]:
    if one.answer is None:
        last = one.points[-1]
        return [one.tier_name, f"more than {last.replicas}", "–", "–", f"{last.attainment:.1%}", "–", "–", "–"]
    answer = one.answer
    return [
        one.tier_name,
        str(answer.replicas),
        f"{answer.gpu_usd_per_hour:.2f}",
        f"{answer.usd_per_million_output_tokens:.3f}",
        f"{answer.attainment:.1%}",
        *_latency_cells(answer.outcome),
    ]


def _latency_cells(outcome: Outcome) -> list[str]:
    ttft, tpot = outcome.requests.ttft, outcome.requests.tpot
    return [latency_text(ttft[50]), latency_text(ttft[99]), latency_text(tpot[50], 1)]


def control_section(data: ReportData) -> str:
    """Defaults, best constant and adaptive policies on the same seeds."""
    rows = [_control_row(played) for played in data.controls]
    chosen = max(range(len(rows)), key=lambda i: data.controls[i].score.mean)
    knobs = ", ".join(
        f"{name} {knob_value(name, float(value))}"
        for name, value in zip(NAMES, data.constant, strict=True)
        if name in data.task.knobs.active
    )
    return section(
        "controls",
        "Static or adaptive",
        paragraph(f"All on the task's fleet and on the same seeds ({data.seeds}), which no search has seen."),
        html_table(
            ["control", "score", "within SLO", "TTFT p50", "TTFT p99", "TPOT p50", "tokens/s", "billed USD/h"],
            rows,
            chosen=chosen,
        ),
        paragraph(f"Best constant: {knobs}."),
        grid(
            picture(svg_uri(draw_pareto(data)), "Cost against SLO on this fleet", "A dot per constant tried."),
            picture(
                svg_uri(draw_effects(data)),
                "Which knobs matter",
                "Reward lost between a knob's best and worst value, the others at the best constant of a short search.",
            ),
        ),
        paragraph(
            "The score weighs "
            + ", ".join(f"{name} {weight:.0%}" for name, weight in data.task.grader.weights.items())
            + " between a random agent (0) and the best known control (1). Billed: busy time and reserved memory.",
            "note",
        ),
    )


def _control_row(played: ControlResult) -> list[str]:
    f, score = played.outcome, played.score
    return [
        played.name,
        f"{score.mean:.3f} [{score.ci95[0]:.3f}, {score.ci95[1]:.3f}]",
        f"{f.slo_attainment:.1%}",
        *_latency_cells(f),
        f"{f.throughput_tps:,.0f}",
        f"{f.cost_usd_per_hour:.2f}",
    ]


def _knob(name: str, episode: PlayedEpisode) -> Array:
    values: Array = named(episode.trajectory.knobs)[name]
    return values


def timeline_section(data: ReportData) -> str:
    """One seed under each control."""
    panels: list[tuple[str, str, Series, dict[str, bool]]] = [
        (
            "Time to first token",
            "TTFT p50, ms",
            lambda e: np.maximum(e.trajectory.metrics["ttft_p50_ms"], 1.0),
            {"log": True},
        ),
        ("Within SLO", "share of requests", lambda e: e.trajectory.terms["slo"], {}),
        ("Batch cap", "requests per GPU", partial(_knob, "batch_cap"), {"steps": True}),
        ("KV budget", "share of free memory", partial(_knob, "kv_budget_fraction"), {"steps": True}),
        ("Precision", "tier", partial(_knob, "quantization_tier"), {"steps": True, "tiers": True}),
        ("Bill", "USD per hour", lambda e: e.trajectory.terms["cost_usd"] * S_PER_HOUR / data.task.window_s, {}),
    ]
    if "quantization_tier" not in data.task.knobs.active:
        panels = [panel for panel in panels if panel[0] != "Precision"]
    pictures = [
        picture(svg_uri(draw_over_time(data, label, values, **how)), title) for title, label, values, how in panels
    ]
    return section(
        "timeline",
        "One episode",
        paragraph(f"Seed {data.controls[0].episodes[0].seed}, the same traffic under each control."),
        grid(*pictures),
    )


def policy_section(data: ReportData) -> str:
    """What the policy does in quiet, usual and busy windows."""
    levels = traffic_levels(data.adaptive.episodes)
    active = data.task.knobs.active
    header = ["after", "requests/s", "prompt tokens/s", "within SLO"]
    columns = [knob for knob in data.task.action_knobs if knob.name in active and knob.kind != "tier"]
    header += [knob.short for knob in columns]
    header += list(TIER_NAMES) if "quantization_tier" in active else []
    rows = []
    for level in levels:
        row = [f"{level.name} windows", f"{level.rate_rps:.1f}", f"{level.prompt_tps:,.0f}", f"{level.attainment:.1%}"]
        row += [f"{level.knobs[knob.name]:{'.0f' if knob.scale == 'log' else '.2f'}}" for knob in columns]
        row += [f"{share:.0%}" for share in level.tier_shares.values()] if "quantization_tier" in active else []
        rows.append(row)
    return section(
        "policy",
        f"What {data.adaptive.name} does when",
        bullets(sentences(data.task, levels)),
        html_table(header, rows),
        paragraph(
            "Windows are sorted by the prompt tokens of the window before: the quietest third, the busiest fifth, and "
            "what lies between. Knobs are means; tiers are shares of windows.",
            "note",
        ),
    )


def flags_section(data: ReportData) -> str:
    """The best constant as a command."""
    flags = vllm_flags(data.task, data.constant)
    spec = data.task.deployment
    rows = "".join(
        f'<tr><td><code>{escape(flag.text)}</code></td><td class="why">{inline(flag.why)}</td></tr>' for flag in flags
    )
    split = ""
    if named(data.constant)["prefill_decode_split"]:
        split = paragraph(
            f"With {spec.prefill_replicas} more for prefill: both kinds need `--kv-transfer-config` with a connector."
        )
    return section(
        "flags",
        "Recommended vLLM flags for the static answer",
        paragraph(f"Start {spec.replicas} of these behind a load balancer (or one with `--data-parallel-size`)."),
        f"<pre><code>{escape(vllm_command(data.task, data.constant))}</code></pre>",
        split,
        f'<div class="scroll"><table><tbody>{rows}</tbody></table></div>',
        paragraph(
            "The command leaves out `--num-gpu-blocks-override`, which describes the same pool as "
            "`--gpu-memory-utilization`: give one of them.",
            "note",
        ),
    )


def made_section(data: ReportData, command: str) -> str:
    """How to make the page again, and which assumptions it rests on."""
    task = data.task
    facts = [
        f"Command: `{command}`.",
        f"Task `{task.id}` version {task.version}; environment {ENVIRONMENT_VERSION}, package {PACKAGE_VERSION}, "
        f"commit {data.commit}.",
        f"Evaluation seeds {data.seeds}; tuning and reference seeds come from other ranges.",
        f"Simulated on the latency profile `{task.deployment.profile}`; docs/fidelity.md says how far to believe it.",
        "SLOs, patience, draft acceptance and the value of a precision are assumptions of the task file, not of the "
        "traffic: change them there.",
    ]
    return section("made", "How this was made", bullets(facts))
