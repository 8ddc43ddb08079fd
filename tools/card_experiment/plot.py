"""The experiment as a picture: every policy on the engine against the simulator, and one seed window by window."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from llmserve_env.engine.knobs import named
from llmserve_env.evaluation.plots import DOTS_PER_INCH
from llmserve_env.tasks.task import Task
from tools.card_experiment.comparison import Comparison
from tools.card_experiment.policies import TRAINED, TUNED
from tools.card_experiment.records import Record

PANELS = (("token budget", "token_budget"), ("requests waiting", "queue_depth"), ("reward", "reward"))


def draw(found: Comparison, task: Task, records: Sequence[Record], path: Path) -> None:
    """Write the picture."""
    figure = Figure(figsize=(10.5, 4.6), layout="constrained")
    parts = figure.subfigures(1, 2, squeeze=False, width_ratios=(1.0, 1.5))[0]
    _scores(parts[0].subplots(), found)
    shown = {record.key: record for record in records}
    seed = min(seed for _, seed in shown)
    axes = parts[1].subplots(len(PANELS), 1, sharex=True)
    for name in (TUNED, TRAINED):
        if (name, seed) in shown:
            _windows(axes, shown[(name, seed)], name, task.window_s)
    axes[0].set_yscale("log", base=2)
    axes[0].set_title(f"On the engine, seed {seed}", fontsize=9)
    axes[0].legend(fontsize=7)
    axes[-1].set_xlabel("seconds")
    path.parent.mkdir(parents=True, exist_ok=True)
    # No software line: the same results give the same bytes.
    figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None})


def _scores(axis, found: Comparison) -> None:  # type: ignore[no-untyped-def]
    """Engine against simulator; a policy on the diagonal does what the simulator promised."""
    for name, cells in found.live.items():
        live, simulated = cells[found.ranked_by], found.simulated[name][found.ranked_by]
        axis.errorbar(
            simulated.mean,
            live.mean,
            xerr=[[simulated.mean - simulated.low], [simulated.high - simulated.mean]],
            yerr=[[live.mean - live.low], [live.high - live.mean]],
            fmt="o",
            capsize=3,
            label=name,
        )
    low, high = axis.get_xlim()
    axis.plot([low, high], [low, high], color="#999999", linewidth=0.8, zorder=0)
    axis.set_xlabel(f"{found.ranked_by} in the simulator")
    axis.set_ylabel(f"{found.ranked_by} on the engine")
    axis.legend(fontsize=7)


def _windows(axes, record: Record, name: str, window_s: float) -> None:  # type: ignore[no-untyped-def]
    values = {**record.windows, "token_budget": named(np.ascontiguousarray(record.windows["knobs"]))["token_budget"]}
    for axis, (label, field) in zip(axes, PANELS, strict=True):
        seconds = np.arange(len(values[field])) * window_s
        axis.step(seconds, values[field], where="post", linewidth=1, label=name)
        axis.set_ylabel(label, fontsize=8)
