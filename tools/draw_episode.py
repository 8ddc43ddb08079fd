"""Draw the README's picture of one episode under two agents: `python -m tools.draw_episode [-o FILE]`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from llmserve_env.agents.registry import make_agent
from llmserve_env.engine.knobs import named
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.graders import grade_episode
from llmserve_env.tasks.catalog import load_task
from llmserve_env.workloads import schedule

TASK = "bursty_workload"
SEED = SEED_RANGES["evaluation"][0]
COLOURS = {"default_knobs": "#b5651d", "ppo": "#1f5fa8"}
LABELS = {"default_knobs": "default knobs (batch 32)", "ppo": "trained PPO"}
OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "images" / "episode.png"


def episodes() -> dict[str, PlayedEpisode]:
    """The same traffic under each control."""
    task = load_task(TASK)
    return {name: play(make_agent(name), task, [SEED])[0] for name in COLOURS}


def shade_bursts(axis: Axes, episode: PlayedEpisode, seconds: Any) -> None:
    """Grey where the traffic bursts."""
    phases = schedule(episode.task.workload, episode.seed).phase
    is_burst = np.array([phase == "burst" for phase in phases[: len(seconds)]])
    axis.fill_between(seconds, 0, 1, where=is_burst, transform=axis.get_xaxis_transform(), color="#e8e8e8", step="pre")


def draw(played: dict[str, PlayedEpisode]) -> Figure:
    """Traffic, waits against the SLO, and what the agent did."""
    first = next(iter(played.values()))
    seconds = np.arange(1, first.step_count + 1) * first.task.window_s
    slo_ms = first.task.workload.classes[0].ttft_slo_ms or 0.0
    figure = Figure(figsize=(9.6, 7.2), layout="constrained")
    panels = figure.subplots(5, 1, sharex=True, height_ratios=(1.0, 1.3, 1.0, 1.0, 0.8))
    traffic, waits, met, pool, drafts = panels
    for axis in panels:
        shade_bursts(axis, first, seconds)
        axis.spines[["top", "right"]].set_visible(False)
    traffic.plot(seconds, first.trajectory.metrics["window_rate_rps"], color="#333333", linewidth=1.1)
    for name, episode in played.items():
        label = f"{LABELS[name]}, score {grade_episode(episode).score:.2f}"
        style: dict[str, Any] = {"color": COLOURS[name], "linewidth": 1.3}
        waits.plot(seconds, episode.trajectory.metrics["ttft_p50_ms"], **style)
        met.plot(seconds, 100.0 * episode.trajectory.terms["slo"], label=label, **style)
        knobs = named(episode.trajectory.knobs)
        pool.step(seconds, knobs["kv_budget_fraction"], where="pre", **style)
        drafts.step(seconds, knobs["speculation_depth"], where="pre", **style)
    waits.axhline(slo_ms, color="#a02020", linestyle="--", linewidth=1)
    waits.annotate(f"SLO {slo_ms:g} ms", (seconds[-1], slo_ms), ha="right", va="bottom", color="#a02020", fontsize=8)
    figure.legend(*met.get_legend_handles_labels(), loc="outside upper center", fontsize=9, ncols=2, frameon=False)
    labels = ("requests/s", "median TTFT, ms", "within SLO, %", "KV budget", "drafts")
    for axis, label in zip(panels, labels, strict=True):
        axis.set_ylabel(label, fontsize=9)
    waits.set_ylim(0.0, 1.2 * slo_ms)
    met.set_ylim(0.0, 105.0)
    pool.set_ylim(0.0, 1.05)
    drafts.set_xlabel("seconds")
    traffic.set_title(f"{TASK}, seed {SEED}: the same traffic, bursts shaded", fontsize=10)
    return figure


def main() -> None:
    """Play the episodes and draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT, help="file to write (default: docs/images)")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    draw(episodes()).savefig(arguments.output, dpi=110, metadata={"Software": None})
    print(arguments.output)


if __name__ == "__main__":
    main()
