"""The sections of the report about control: constant or adaptive, one episode, and what the policy does when."""

from __future__ import annotations

from functools import partial

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import named
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.evaluation.markup import bullets, grid, html_table, paragraph, picture, section
from llmserve_env.planning.report.charts import Series, draw_over_time, svg_uri
from llmserve_env.planning.report.controls import Control, Controls
from llmserve_env.planning.report.gather import ReportData
from llmserve_env.planning.report.policy import NEVER, sentences, traffic_levels

KINDS = {"constant": "constant", "deployable": "adapts, can be deployed", "bound": "bound: sees the simulator's state"}


def control_section(data: ReportData) -> str:
    """The recommended configuration beside policies that adapt, on the same fleet and seeds."""
    controls = data.controls
    return section(
        "controls",
        "Constant or adaptive",
        paragraph(f"All on {data.shown.replicas} × {data.shown.gpu} and fresh seeds. {controls.reason}"),
        html_table(
            ["control", "kind", "worst promise", "TTFT p99", "TPOT p50", "lost", "tokens/s"],
            [_row(control) for control in controls.all],
            text_columns=2,
            chosen=[control.name for control in controls.all].index(controls.recommended.name),
        ),
        paragraph(adaptive_text(controls)),
        paragraph(
            f"The planner tries futures in the simulator, on {len(controls.named('planner').episodes)} seeds: it shows "
            "how much control could add and cannot be deployed.",
            "note",
        ),
    )


def _row(control: Control) -> list[str]:
    found = control.found
    ttft, tpot = found.requests["ttft_p99_ms"], found.requests["tpot_p50_ms"]
    return [
        control.name,
        KINDS[control.kind],
        f"{found.worst.value_text}{'' if found.is_kept else ' ✗'}",
        "lost" if ttft is None else f"{ttft:,.0f} ms",
        "–" if tpot is None else f"{tpot:.1f} ms",
        f"{found.lost_share:.1%}",
        f"{found.throughput_tps:,.0f}",
    ]


def adaptive_text(controls: Controls) -> str:
    """What the policy adds to the constant, in requests and in dollars."""
    adaptive, constant = controls.adaptive.found, controls.recommended.found
    points = 100.0 * (adaptive.kept_share - constant.kept_share)
    if abs(points) < 0.05:
        served = f"`{controls.adaptive.name}` keeps the worst promise as well as the constant"
    else:
        how = "more" if points > 0 else "less"
        served = f"`{controls.adaptive.name}` keeps the worst promise {abs(points):.1f} points {how} than the constant"
    if controls.saved_usd_per_hour > 0.0:
        return f"{served}. With it one GPU fewer is enough, which saves {controls.saved_usd_per_hour:.2f} USD per hour."
    if controls.smaller is None:
        return f"{served}. The fleet is a single GPU, so adapting cannot save one."
    short = controls.smaller.worst
    return (
        f"{served}. One GPU fewer is not enough with it either ({short.text}: {short.value_text} on the seeds "
        "that decide)."
    )


def _knob(name: str, episode: PlayedEpisode) -> Array:
    values: Array = named(episode.trajectory.knobs)[name]
    return values


def timeline_section(data: ReportData) -> str:
    """One seed under each control."""
    panels: list[tuple[str, str, Series, dict[str, bool]]] = [
        (
            "Time to first token",
            "TTFT p50 of 10 windows, ms",
            lambda e: np.maximum(e.trajectory.metrics["ttft_p50_ms"], 1.0),
            {"log": True},
        ),
        ("First tokens in time", "share of requests", lambda e: e.trajectory.terms["slo"], {"share": True}),
        ("Batch cap", "requests per GPU", partial(_knob, "batch_cap"), {"steps": True}),
        ("Precision", "tier", partial(_knob, "quantization_tier"), {"steps": True, "tiers": True}),
    ]
    if "quantization_tier" not in data.task.knobs.active:
        panels = panels[:-1]
    pictures = [
        picture(svg_uri(draw_over_time(data, label, values, **how)), title) for title, label, values, how in panels
    ]
    seed = data.controls.recommended.episodes[0].seed
    return section(
        "timeline", "One episode", paragraph(f"Seed {seed}, the same traffic under each control."), grid(*pictures)
    )


def policy_section(data: ReportData) -> str:
    """What the policy does in quiet, usual and busy windows."""
    adaptive = data.controls.adaptive
    levels = traffic_levels(adaptive.episodes)
    active = data.task.knobs.active
    header = ["after", "requests/s", "prompt tokens/s", "first token in time"]
    columns = [knob for knob in data.task.action_knobs if knob.name in active and knob.kind != "tier"]
    header += [knob.short for knob in columns]
    tiers = [tier for tier in levels[0].tier_shares if any(level.tier_shares[tier] >= NEVER for level in levels)]
    header += tiers if "quantization_tier" in active else []
    rows = []
    for level in levels:
        row = [f"{level.name} windows", f"{level.rate_rps:.1f}", f"{level.prompt_tps:,.0f}", f"{level.attainment:.1%}"]
        row += [f"{level.knobs[knob.name]:{'.0f' if knob.scale == 'log' else '.2f'}}" for knob in columns]
        row += [f"{level.tier_shares[tier]:.0%}" for tier in tiers] if "quantization_tier" in active else []
        rows.append(row)
    return section(
        "policy",
        f"What {adaptive.name} changes with the traffic",
        bullets(sentences(data.task, levels)),
        html_table(header, rows),
        paragraph(
            "Windows are sorted by the prompt tokens of the window before: the quietest third, the busiest fifth, and "
            "what lies between. Knobs are means; tiers are shares of windows.",
            "note",
        ),
    )
