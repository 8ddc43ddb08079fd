"""One episode of a fleet as a page: replicas by state against traffic, promises and dollars."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files

import numpy as np
from matplotlib.axes import Axes

from llmserve_env.evaluation.markup import cards, html_table, page, paragraph, picture, section
from llmserve_env.fleet.timeline import STATES, FleetTimeline
from llmserve_env.planning.report.charts import BROKEN, INK, Draw, svg_uri

WIDE, LOW = (10.6, 3.1), (10.6, 1.9)
MANY_POOLS = 2
"""More pools than this get lower pictures."""
COLOURS = {"up": "#2f6db5", "draining": "#8fb3dc", "waking": "#6aa84f", "booting": "#e0a458", "asleep": "#c9d0d8"}
BLUE, ORANGE, GREEN = "#2f6db5", "#d9692b", "#6aa84f"
S_PER_DAY = 86_400.0
SMOOTH = 10
"""Windows over which attainment is shown: five minutes of thirty seconds."""


def fleet_page(timeline: FleetTimeline, agent: str, command: str, notes: Sequence[str] = ()) -> str:
    """The whole page, which needs nothing from elsewhere; `notes` say what was done to the series."""
    task, traffic = timeline.task, timeline.traffic
    style = files("llmserve_env.planning.report").joinpath("style.css").read_text(encoding="utf-8")
    body = "\n".join(
        [
            f"<h1>{escape(task.name)}: what {escape(agent)} did</h1>",
            paragraph(task.description, "soft"),
            paragraph(headline(timeline, agent), "lead"),
            summary_cards(timeline),
            _replicas_section(timeline),
            _traffic_section(timeline),
            _promises_section(timeline),
            _dollars_section(timeline),
            section(
                "made",
                "How this was made",
                paragraph(
                    f"{task.versioned_id}, {task.length_s / 3_600:g} hours of {traffic.series} from second "
                    f"{traffic.start_s:.0f} on, seed {traffic.seed}. {task.prices.source}"
                ),
                *(paragraph(note) for note in notes),
                f"<pre>{escape(command)}</pre>",
            ),
        ]
    )
    return page(f"{task.name}: {agent}", style, body)


def per_day(timeline: FleetTimeline, dollars: float) -> float:
    """An episode's dollars as dollars per day."""
    return dollars * S_PER_DAY / timeline.task.length_s


def headline(timeline: FleetTimeline, agent: str) -> str:
    """What came of it, in a sentence."""
    figures = timeline.figures
    net_usd = per_day(timeline, float(timeline.net_usd[-1]))
    verb = "earns" if net_usd >= 0 else "loses"
    return (
        f"{agent} {verb} {abs(net_usd):,.0f} dollars per day: {per_day(timeline, figures['income_usd'][-1]):,.0f} of "
        f"income, {per_day(timeline, figures['bill_usd'][-1]):,.0f} for GPUs and "
        f"{per_day(timeline, figures['credits_usd'][-1]):,.0f} given back, because "
        f"{1 - figures['attainment_so_far'][-1]:.2%} of the requests broke their promise."
    )


def _usd(dollars: float) -> str:
    """Whole dollars, with the sign before the currency."""
    return f"{'−' if dollars <= -0.5 else ''}${abs(dollars):,.0f}"


def summary_cards(timeline: FleetTimeline) -> str:
    """The figures of the suite's table, and what they hang on."""
    figures = timeline.figures
    hours = float(figures["gpu_hours"][-1])
    up = timeline.replicas[:, :, STATES.index("up")].sum(axis=1)
    million = timeline.offered("output_tokens").sum() / 1e6
    return cards(
        [
            (_usd(per_day(timeline, float(timeline.net_usd[-1]))), "net per day"),
            (f"{figures['attainment_so_far'][-1]:.2%}", "of requests within both promises"),
            (f"{per_day(timeline, hours):,.0f}", "GPU-hours per day"),
            (f"{up.mean():.1f}", f"replicas serve on average, {up.min():.0f} to {up.max():.0f}"),
            (f"{timeline.offered('arrivals').sum():,.0f}", "requests"),
            (f"${figures['bill_usd'][-1] / million:,.2f}", "for GPUs per million output tokens"),
        ]
    )


def _replicas_section(timeline: FleetTimeline) -> str:
    names = timeline.task.pool_names
    pictures = [
        picture(
            svg_uri(_draw_replicas(timeline, p), WIDE if len(names) <= MANY_POOLS else LOW),
            f"Replicas of {name}" if len(names) > 1 else "Replicas by state",
            "The line is what was ordered to serve." if p == 0 else "",
            is_wide=True,
        )
        for p, name in enumerate(names)
        if timeline.replicas[:, p].any() or timeline.ordered[:, p].any()
    ]
    return section("replicas", "Replicas", *pictures)


def _draw_replicas(timeline: FleetTimeline, pool: int) -> Draw:
    def draw(axes: Axes) -> None:
        counts = timeline.replicas[:, pool].T
        shown = [k for k in range(len(STATES)) if counts[k].any()]
        axes.stackplot(
            timeline.hours,
            [counts[k] for k in shown],
            step="pre",
            colors=[COLOURS[STATES[k]] for k in shown],
            labels=[STATES[k] for k in shown],
            linewidth=0,
        )
        axes.step(timeline.hours, timeline.ordered[:, pool], where="pre", color=INK, linewidth=0.9, label="ordered")
        axes.set(xlabel="hours", ylabel="replicas", xlim=(0, timeline.hours[-1]))
        axes.set_ylim(bottom=0)
        axes.locator_params(axis="y", integer=True)
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=6, borderaxespad=0.2)

    return draw


def _traffic_section(timeline: FleetTimeline) -> str:
    window_s = timeline.task.window_s

    def draw_rates(axes: Axes) -> None:
        axes.plot(timeline.hours, timeline.offered("arrivals") / window_s, color=BLUE, linewidth=1, label="requests")
        starts = timeline.offered("session_starts") / window_s
        if starts.any():
            axes.plot(timeline.hours, starts, color=ORANGE, linewidth=1, label="session starts")
        _finish(axes, timeline, "per second", 3)

    def draw_load(axes: Axes) -> None:
        axes.plot(timeline.hours, timeline.figures["running"], color=BLUE, linewidth=1, label="running")
        axes.plot(timeline.hours, timeline.figures["queue"], color=BROKEN, linewidth=1, label="waiting")
        if timeline.figures["batch_backlog"].any():
            backlog = timeline.figures["batch_backlog"]
            axes.plot(timeline.hours, backlog, color=GREEN, linewidth=1, label="batch jobs not admitted")
        _finish(axes, timeline, "requests", 3)

    return section(
        "traffic",
        "Traffic",
        picture(svg_uri(draw_rates, WIDE), "What came", is_wide=True),
        picture(svg_uri(draw_load, WIDE), "What the fleet had to do", is_wide=True),
    )


def _finish(axes: Axes, timeline: FleetTimeline, unit: str, columns: int) -> None:
    axes.set(xlabel="hours", ylabel=unit, xlim=(0, timeline.hours[-1]))
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, borderaxespad=0.2)


def _promises_section(timeline: FleetTimeline) -> str:
    figures, slo = timeline.figures, timeline.task.slo
    judged = np.convolve(figures["judged"], np.ones(SMOOTH), "same")
    met = np.convolve(figures["met"], np.ones(SMOOTH), "same")

    def draw(axes: Axes) -> None:
        share = 100.0 * np.where(judged > 0, met / np.maximum(judged, 1), 1.0)
        axes.plot(timeline.hours, share, color=BLUE, linewidth=1, label="in the five minutes around")
        so_far = 100.0 * figures["attainment_so_far"]
        axes.plot(timeline.hours, so_far, color=ORANGE, linewidth=1.4, label="so far in the episode")
        for rung in timeline.task.prices.credits:
            axes.axhline(100.0 * rung.below, color=INK, linestyle=":", linewidth=0.8)
        axes.set(xlabel="hours (dotted: the rungs of the credits)", ylabel="% within both promises")
        axes.set_xlim(0, timeline.hours[-1])
        axes.set_ylim(max(0.0, min(94.0, float(share.min()) - 1.0)), 100.3)
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2)

    text = f"A request keeps its promise with a first token within {slo.ttft_ms:g} ms and {slo.tpot_ms:g} ms per token."
    return section("promises", "Promises", paragraph(text), picture(svg_uri(draw, WIDE), "Promises kept", is_wide=True))


def _dollars_section(timeline: FleetTimeline) -> str:
    figures = timeline.figures

    def draw(axes: Axes) -> None:
        for values, colour, label in (
            (figures["income_usd"], BLUE, "income"),
            (figures["bill_usd"], ORANGE, "GPUs"),
            (figures["credits_usd"], BROKEN, "credits, if it ended here"),
            (timeline.net_usd, INK, "net"),
        ):
            axes.plot(timeline.hours, values, color=colour, linewidth=1.4, label=label)
        axes.axhline(0.0, color=INK, linewidth=0.6)
        axes.set(xlabel="hours", ylabel="dollars so far", xlim=(0, timeline.hours[-1]))
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, borderaxespad=0.2)

    header = ("hour", "requests/s", "replicas", "promises kept", "offered", "income", "GPUs", "credits", "net")
    text = (
        "`offered` is what the hour's requests would pay if every promise was kept; income has batch jobs besides. "
        "Credits change with the attainment of the whole episode, so an hour can give some back."
    )
    table = html_table(header, _hourly(timeline))
    return section(
        "dollars", "Dollars", picture(svg_uri(draw, WIDE), "Dollars so far", is_wide=True), paragraph(text), table
    )


def _hourly(timeline: FleetTimeline) -> list[tuple[str, ...]]:
    """A row of figures per hour, and one for all."""
    figures, steps = timeline.figures, timeline.task.steps
    width = max(1, round(3_600.0 / timeline.task.window_s))
    spans = [(str(k // width + 1), k, min(k + width, steps)) for k in range(0, steps, width)]
    up = timeline.replicas[:, :, STATES.index("up")].sum(axis=1)

    def gained(name: str, first: int, stop: int) -> float:
        before = figures[name][first - 1] if first else 0.0
        return float(figures[name][stop - 1] - before)

    rows = []
    for label, first, stop in [*spans, ("all", 0, steps)]:
        judged = figures["judged"][first:stop].sum()
        kept = figures["met"][first:stop].sum() / judged if judged else 1.0
        income, bill, credits = (gained(name, first, stop) for name in ("income_usd", "bill_usd", "credits_usd"))
        rate = timeline.offered("arrivals")[first:stop].sum() / ((stop - first) * timeline.task.window_s)
        offered = timeline.offered("income_usd")[first:stop].sum()
        money = (offered, income, bill, credits, income - bill - credits)
        rows.append(
            (label, f"{rate:.1f}", f"{up[first:stop].mean():.1f}", f"{kept:.2%}", *(f"{x:,.2f}" for x in money))
        )
    return rows
