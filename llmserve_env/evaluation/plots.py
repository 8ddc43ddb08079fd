"""Plots of an evaluation: scores with intervals, cost against SLO, episode timelines and learning curves."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from llmserve_env.engine.knobs import named
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.evaluation.evaluate import EpisodeResult
from llmserve_env.evaluation.markup import embedded
from llmserve_env.evaluation.report import Summaries

DOTS_PER_INCH = 110


def png_uri(figure: Figure) -> str:
    """A plot as an address for an HTML page."""
    out = io.BytesIO()
    # A fixed date and no software line: the same results give the same bytes.
    figure.savefig(out, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    return embedded(out.getvalue(), "image/png")


def score_plot(summaries: Summaries) -> Figure:
    """Mean score of every agent with its interval, a panel per task."""
    tasks = list(dict.fromkeys(task for rows in summaries.values() for task in rows))
    figure = Figure(figsize=(4.0 * len(tasks), 0.4 * len(summaries) + 1.4), layout="constrained")
    for axis, task in zip(figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0], tasks, strict=True):
        rows = [(agent, by_task[task]["score"]) for agent, by_task in summaries.items() if task in by_task]
        means = np.array([score.mean for _, score in rows])
        spread = np.abs(np.array([score.ci95 for _, score in rows]).T - means)
        axis.barh([agent for agent, _ in rows], means, xerr=spread, color="#7fa8d1", ecolor="#1f4e79", capsize=3)
        axis.set_title(task, fontsize=9)
        axis.set_xlabel("score")
        axis.set_xlim(0.0, 1.0)
        axis.invert_yaxis()
    return figure


def pareto_plot(results: Sequence[EpisodeResult]) -> Figure:
    """Cost against SLO attainment: an episode per dot, a panel per task."""
    tasks = list(dict.fromkeys(result.task_id for result in results))
    figure = Figure(figsize=(4.2 * len(tasks), 3.6), layout="constrained")
    for axis, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        for agent in dict.fromkeys(result.agent for result in results):
            rows = [r for r in results if r.task_id == task and r.agent == agent]
            axis.scatter([r.cost_usd for r in rows], [r.slo_attainment for r in rows], s=14, alpha=0.7, label=agent)
        axis.set_title(task, fontsize=9)
        axis.set_xlabel("USD per episode")
        axis.set_ylabel("SLO attainment")
        axis.legend(fontsize=6)
    return figure


def timeline_plot(episodes: dict[str, PlayedEpisode]) -> Figure:
    """One seed under several agents: traffic, reward, TTFT and batch cap."""
    first = next(iter(episodes.values()))
    figure = Figure(figsize=(9.0, 6.4), layout="constrained")
    panels = figure.subplots(4, 1, sharex=True)
    seconds = np.arange(1, first.step_count + 1) * first.task.window_s
    panels[0].plot(seconds, first.trajectory.metrics["window_rate_rps"], color="#444444", linewidth=1)
    for name, episode in episodes.items():
        metrics = episode.trajectory.metrics
        panels[1].plot(seconds, episode.trajectory.terms["reward"], label=name, linewidth=1)
        panels[2].semilogy(seconds, np.maximum(metrics["ttft_p50_ms"], 1.0), linewidth=1)
        panels[3].step(seconds, named(episode.trajectory.knobs)["batch_cap"], where="pre", linewidth=1)
    for panel, label in zip(panels, ("requests/s", "reward", "TTFT p50 ms", "batch cap"), strict=True):
        panel.set_ylabel(label, fontsize=8)
    panels[1].legend(fontsize=7, loc="lower right")
    panels[3].set_xlabel("seconds")
    panels[0].set_title(f"{first.task.id}, seed {first.seed}", fontsize=9)
    return figure


def learning_plot(card: dict[str, Any]) -> Figure:
    """Training and validation of a policy from its card."""
    curve = card["curve"]
    figure = Figure(figsize=(7.0, 3.8), layout="constrained")
    axis = figure.subplots()
    axis.plot(curve["steps"], curve["return"], color="#7fa8d1", linewidth=1, label="training return (mean of episodes)")
    axis.set_xlabel("environment steps")
    axis.set_ylabel("return")
    other = axis.twinx()
    other.plot(curve["validation_steps"], curve["validation_score"], color="#b03030", marker="o", markersize=3)
    other.set_ylabel("validation score (greedy)", color="#b03030")
    axis.legend(loc="lower right", fontsize=8)
    axis.set_title(f"PPO on {', '.join(card['tasks'])}, seed {card['seed']}", fontsize=9)
    return figure


def card_in(folder: Path) -> dict[str, Any] | None:
    """The card of the policy in a folder, where there is one with a curve."""
    path = folder / "ppo.json"
    if not path.is_file():
        return None
    card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return card if "curve" in card else None
