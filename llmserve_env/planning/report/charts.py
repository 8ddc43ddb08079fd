"""The report's pictures: small SVG files as text, sharp on any screen and the same bytes for the same figures."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, cast

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from llmserve_env.arrays import Array
from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.evaluation.markup import embedded
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.planning.capacity.checking import MATTERS
from llmserve_env.planning.report.controls import RECOMMENDED, VLLM
from llmserve_env.planning.report.gather import ReportData
from llmserve_env.units import PS_PER_S
from llmserve_env.workloads import sample, schedule

Draw = Callable[[Axes], None]
"""Puts a picture on its axes."""
Series = Callable[[PlayedEpisode], Array]
"""One number per step of an episode."""

INK, GRID = "#27303a", "#e3e7ec"
COLOURS = {VLLM: "#9aa3ad", RECOMMENDED: "#2f6db5"}
ADAPTIVE, BROKEN = "#d9692b", "#c0392b"
PALETTE = ("#2f6db5", "#d9692b", "#6aa84f", "#8e5bb5", "#b5882f", "#3aa0a0", "#9aa3ad", "#a33c6a")
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
_DOTTED = " (dotted: the target)"
PREVIEW_SEED = SEED_RANGES["answers"].start


def svg_uri(draw: Draw, size: tuple[float, float] = SIZE) -> str:
    """A picture that `draw` puts on its axes, as text that fits into an HTML file."""
    with matplotlib.rc_context(cast(Any, SETTINGS)):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return embedded(out.getvalue(), "image/svg+xml")


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
    """Put the legend above the axes, where no line runs through it."""
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
        axes.xaxis.set_major_formatter(_grouped)
        _legend_above(axes, 2)

    return draw


def draw_capacity(data: ReportData) -> Draw:
    """How well the worst promise is kept over the size of the fleet, per GPU and tier."""

    def draw(axes: Axes) -> None:
        many = len({option.profile for option in data.answer.options}) > 1
        for number, option in enumerate(data.answer.options):
            sizes = [point.replicas for point in option.points]
            label = f"{_gpu(option.profile)} {option.tier_name}" if many else option.tier_name
            shares = [point.kept_share for point in option.points]
            axes.plot(sizes, shares, marker="o", markersize=4, color=PALETTE[number % len(PALETTE)], label=label)
        target = _common_target(data)
        if target is not None:
            axes.axhline(target, color=INK, linestyle=":", linewidth=1)
        largest = max(point.replicas for option in data.answer.options for point in option.points)
        axes.set(xlabel="GPUs" + (_DOTTED if target else ""), ylabel="worst promise kept", xlim=(0.5, largest + 0.5))
        axes.set_ylim(top=1.02)
        axes.locator_params(axis="x", integer=True)
        axes.yaxis.set_major_formatter(_percent)
        _legend_above(axes, 3)

    return draw


def _common_target(data: ReportData) -> float | None:
    """The share that all promises ask for; None where they differ or ask for a mean."""
    shares = {promise.share for promise in data.answer.own.promises}
    return shares.pop() if len(shares) == 1 else None


def draw_prices(data: ReportData) -> Draw:
    """Price of the smallest fleet of every GPU and tier."""

    def draw(axes: Axes) -> None:
        found = [option.best for option in data.answer.options if option.best is not None]
        labels = [f"{one.replicas} × {one.gpu}\n{one.tier_name}" for one in found]
        best = min(one.usd_per_hour for one in found)
        colours = ["#2f6db5" if one.usd_per_hour == best else "#c9d0d8" for one in found]
        bars = axes.bar(labels, [one.usd_per_hour for one in found], color=colours, width=0.6)
        axes.bar_label(bars, fmt="%.2f", fontsize=8, padding=2)
        axes.set(ylabel="USD per hour")
        axes.margins(y=0.15)
        axes.grid(visible=False, axis="x")

    return draw


def draw_scenarios(data: ReportData) -> Draw:
    """How well the worst promise is kept when traffic or fleet differ from what was expected."""

    def draw(axes: Axes) -> None:
        scenarios = data.sensitivity.scenarios[::-1]
        values = [100.0 * one.found.kept_share for one in scenarios]
        colours = ["#2f6db5" if one.found.is_kept else BROKEN for one in scenarios]
        bars = axes.barh([one.name for one in scenarios], values, color=colours, height=0.6)
        axes.bar_label(bars, fmt="%.1f %%", fontsize=8, padding=2)
        target = _common_target(data)
        if target is not None:
            axes.axvline(100.0 * target, color=INK, linestyle=":", linewidth=1)
        axes.set(xlabel="worst promise kept, %" + (_DOTTED if target else ""), xlim=(0, 118))
        axes.set_xticks(range(0, 101, 20))
        axes.grid(visible=False, axis="y")

    return draw


def draw_load_cost(data: ReportData) -> Draw:
    """Cost per million output tokens against the load; red where a promise breaks."""

    def draw(axes: Axes) -> None:
        rps = data.check.traffic.mean_rps
        points = [(load * rps, one.usd_per_million_output_tokens, one.is_kept) for load, one in data.sensitivity.loads]
        axes.plot([p[0] for p in points], [p[1] for p in points], color="#9aa3ad", linewidth=1.2, zorder=1)
        for is_kept, colour, label in ((True, "#2f6db5", "promises kept"), (False, BROKEN, "a promise breaks")):
            rows = [p for p in points if p[2] == is_kept]
            if rows:
                axes.scatter([p[0] for p in rows], [p[1] for p in rows], s=32, color=colour, label=label, zorder=2)
        axes.set(xlabel="requests/s on the recommended fleet", ylabel="USD per million output tokens")
        axes.set_ylim(bottom=0)
        _legend_above(axes, 2)

    return draw


def draw_effects(data: ReportData) -> Draw:
    """What each knob moves, the largest effect on top."""

    def draw(axes: Axes) -> None:
        effects = [effect for effect in data.check.effects if effect.span >= MATTERS][::-1]
        values = [100.0 * effect.span for effect in effects]
        bars = axes.barh([effect.name.replace("_", " ") for effect in effects], values, color="#a9c4e4")
        axes.bar_label(bars, fmt="%.1f", fontsize=8, padding=2)
        axes.set(xlabel="points of the worst promise between best and worst value")
        axes.margins(x=0.12)
        axes.grid(visible=False, axis="y")

    return draw


def _gpu(profile: str) -> str:
    return profile.split("/")[-1].split(".")[0]


def _grouped(value: float, _: object) -> str:
    return f"{value:,.0f}"


def _percent(value: float, _: object) -> str:
    return f"{value:.0%}" if value <= 1.0 + 1e-9 else ""


def draw_over_time(
    data: ReportData,
    label: str,
    values: Series,
    *,
    log: bool = False,
    share: bool = False,
    steps: bool = False,
    tiers: bool = False,
) -> Draw:
    """One quantity of the first seed over time, a line per control."""

    def draw(axes: Axes) -> None:
        names = (VLLM, RECOMMENDED, data.controls.adaptive.name)
        for played in (control for control in data.controls.all if control.name in names):
            episode = played.episodes[0]
            seconds = np.arange(1, episode.step_count + 1) * data.task.window_s
            colour, style = COLOURS.get(played.name, ADAPTIVE), "steps-pre" if steps else "default"
            axes.plot(seconds, values(episode), color=colour, linewidth=1.2, label=played.name, drawstyle=style)
        axes.set(xlabel="seconds", ylabel=label)
        if log:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(LogFormatter())
            axes.yaxis.set_minor_formatter(LogFormatter())
        if share:
            axes.set_ylim(-0.03, 1.03)
        if tiers:
            offered = sorted(data.task.fleet.costs.tiers)
            axes.set_yticks(offered, [TIER_NAMES[n] for n in offered])
            axes.set_ylim(offered[0] - 0.2, offered[-1] + 0.2)
        _legend_above(axes, 3)

    return draw
