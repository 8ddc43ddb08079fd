"""The report's pictures: small SVG files as text, sharp on any screen and the same bytes for the same figures."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, cast

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from llmserve_env.arrays import Array
from llmserve_env.engine.costs import TIER_NAMES
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.evaluation.markup import embedded
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.planning.capacity.replicas import TierCapacity, worst_class
from llmserve_env.planning.report.gather import BEST_CONSTANT, DEFAULTS, ReportData
from llmserve_env.units import PS_PER_S
from llmserve_env.workloads import sample, schedule

Draw = Callable[[Axes], None]
"""Puts a picture on its axes."""
Series = Callable[[PlayedEpisode], Array]
"""One number per step of an episode."""

INK, GRID = "#27303a", "#e3e7ec"
COLOURS = {DEFAULTS: "#9aa3ad", BEST_CONSTANT: "#2f6db5"}
ADAPTIVE, OTHER = "#d9692b", "#6aa84f"
TIER_COLOURS = ("#2f6db5", "#d9692b", "#6aa84f")
SIZE = (5.2, 2.7)
SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "llmserve",
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 9,
    "axes.edgecolor": "#b8c0c8",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
}
PREVIEW_SEED = SEED_RANGES["evaluation"].start


def svg_uri(draw: Draw, size: tuple[float, float] = SIZE) -> str:
    """A picture that `draw` puts on its axes, as text that fits into an HTML file."""
    with matplotlib.rc_context(cast(Any, SETTINGS)):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return embedded(out.getvalue(), "image/svg+xml")


def colour_of(data: ReportData, name: str) -> str:
    """The colour a control has in every picture."""
    return COLOURS.get(name, ADAPTIVE if name == data.adaptive.name else OTHER)


def draw_traffic(data: ReportData) -> Draw:
    """Arrivals of one episode over what is expected of its seed."""

    def draw(axes: Axes) -> None:
        requests = sample(data.task.workload, PREVIEW_SEED)
        seconds = requests.arrival_at_ps / PS_PER_S
        width = max(data.task.window_s, data.task.workload.horizon_s / 200)
        edges = np.arange(0.0, data.task.workload.horizon_s + width, width)
        counts, _ = np.histogram(seconds, edges)
        axes.stairs(counts / width, edges, fill=True, color="#a9c4e4", label="arrivals")
        expected = schedule(data.task.workload, PREVIEW_SEED).total_rps
        axes.plot(np.arange(len(expected)) + 0.5, expected, color="#2f6db5", linewidth=1.2, label="expected rate")
        axes.set(xlabel="seconds", ylabel="requests/s")
        axes.set_ylim(bottom=0)
        _legend_above(axes, 2)

    return draw


def _legend_above(axes: Axes, columns: int) -> None:
    """Where no line can run through it."""
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, borderaxespad=0.2)


def draw_lengths(data: ReportData) -> Draw:
    """Cumulative shares of prompt and output lengths."""

    def draw(axes: Axes) -> None:
        requests = sample(data.task.workload, PREVIEW_SEED)
        levels = np.linspace(0.0, 1.0, 201)
        for name, tokens, colour in (
            ("prompt", requests.prompt_tokens, "#2f6db5"),
            ("output", requests.output_tokens, "#d9692b"),
        ):
            if len(tokens):
                axes.plot(np.quantile(tokens, levels), levels, color=colour, label=name)
        axes.set(xlabel="tokens", ylabel="share of requests up to", xscale="log")
        _legend_above(axes, 2)

    return draw


def draw_capacity(found: Sequence[TierCapacity]) -> Draw:
    """Attainment of the worst class over the size of the fleet."""

    def draw(axes: Axes) -> None:
        for one in found:
            sizes = [point.replicas for point in one.points]
            shares = [point.attainment for point in one.points]
            axes.plot(sizes, shares, marker="o", markersize=4, color=TIER_COLOURS[one.tier], label=one.tier_name)
        axes.axhline(found[0].target, color=INK, linestyle=":", linewidth=1)
        axes.annotate(
            f"target {found[0].target:.0%}", (1.0, found[0].target), xycoords=("axes fraction", "data"),
            ha="right", va="bottom", fontsize=8,
        )  # fmt: skip
        largest = max(point.replicas for one in found for point in one.points)
        axes.set(xlabel="GPUs", ylabel="requests within SLO", ylim=(0, 1.05), xlim=(0.5, largest + 0.5))
        axes.locator_params(axis="x", integer=True)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.legend(loc="lower right")

    return draw


def draw_fleet_pareto(found: Sequence[TierCapacity]) -> Draw:
    """Price of fleets of every tier against what they keep, and the fleets that no other one beats."""

    def draw(axes: Axes) -> None:
        points = [(p.gpu_usd_per_hour, p.attainment, one.tier, p.replicas) for one in found for p in one.points]
        for tier in sorted({point[2] for point in points}):
            rows = [point for point in points if point[2] == tier]
            axes.scatter(
                [r[0] for r in rows], [r[1] for r in rows], s=22, color=TIER_COLOURS[tier], label=TIER_NAMES[tier]
            )
        front = pareto([(cost, share) for cost, share, _, _ in points])
        dearest = max(cost for cost, *_ in points)
        front.append((dearest, front[-1][1]))
        axes.step([c for c, _ in front], [s for _, s in front], where="post", color=INK, linewidth=1, label="front")
        for cost, share, _, replicas in points:
            axes.annotate(f"{replicas}", (cost, share), xytext=(4, -9), textcoords="offset points", fontsize=7)
        axes.set(xlabel="USD per hour for GPUs", ylabel="requests within SLO", ylim=(0, 1.05))
        axes.set_xlim(left=0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.legend(loc="lower right")

    return draw


def draw_pareto(data: ReportData) -> Draw:
    """Billed cost against attainment on this fleet: every constant that was tried, and the controls."""

    def draw(axes: Axes) -> None:
        tried = [(t.outcome.cost_usd_per_hour, worst_class(data.task, t.outcome)) for t in data.trials]
        axes.scatter([c for c, _ in tried], [s for _, s in tried], s=9, color="#c9d0d8", label="constants tried")
        front = pareto(tried)
        axes.step(
            [c for c, _ in front], [s for _, s in front], where="post", color=INK, linewidth=1, label="their front"
        )
        for played in data.controls:
            axes.scatter(
                [played.outcome.cost_usd_per_hour], [worst_class(data.task, played.outcome)], s=48, zorder=3,
                color=colour_of(data, played.name), edgecolor="white", label=played.name,
            )  # fmt: skip
        axes.set(xlabel="billed USD per hour", ylabel="requests within SLO")
        axes.set_ylim(min([0.9, *(s for _, s in front)]) - 0.05, 1.02)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        _legend_above(axes, 3)

    return draw


def draw_effects(data: ReportData) -> Draw:
    """What each knob moves, the largest effect on top."""

    def draw(axes: Axes) -> None:
        effects = sorted(data.check.effects, key=lambda effect: effect.span)
        axes.barh([e.name.replace("_", " ") for e in effects], [e.span for e in effects], color="#a9c4e4")
        axes.set(xlabel="reward per step between best and worst value")
        axes.grid(visible=False, axis="y")

    return draw


def pareto(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points that no cheaper one beats, by cost."""
    front: list[tuple[float, float]] = []
    for cost, share in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or share > front[-1][1]:
            front.append((cost, share))
    return front


def draw_over_time(
    data: ReportData,
    label: str,
    values: Series,
    *,
    log: bool = False,
    steps: bool = False,
    tiers: bool = False,
) -> Draw:
    """One quantity of the first seed over time, a line per control."""

    def draw(axes: Axes) -> None:
        shown = [p for p in data.controls if p.name in (DEFAULTS, BEST_CONSTANT, data.adaptive.name)]
        for played in shown:
            episode = played.episodes[0]
            seconds = np.arange(1, episode.step_count + 1) * data.task.window_s
            colour, style = colour_of(data, played.name), "steps-pre" if steps else "default"
            axes.plot(seconds, values(episode), color=colour, linewidth=1.2, label=played.name, drawstyle=style)
        axes.set(xlabel="seconds", ylabel=label)
        if log:
            axes.set_yscale("log")
        if tiers:
            axes.set_yticks(range(len(TIER_NAMES)), TIER_NAMES)
            axes.set_ylim(-0.2, len(TIER_NAMES) - 0.8)
        _legend_above(axes, 3)

    return draw
