"""The experiment's table in Markdown, as docs/card.md shows it, and as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

from benchmarks.markdown import markdown_table
from tools.card_experiment.comparison import FIGURES, RELATIVE, Cell, Comparison

LABELS = {
    "reward": "mean reward",
    "attainment": "attainment",
    "goodput_rps": "goodput, requests/s",
    "ttft_mean_ms": "TTFT mean, ms",
    "ttft_p50_ms": "TTFT p50, ms",
    "ttft_p99_ms": "TTFT p99, ms",
    "tpot_mean_ms": "TPOT mean, ms",
    "tpot_p99_ms": "TPOT p99, ms",
}


def as_markdown(found: Comparison, num_seeds: int) -> str:
    """A row per policy and figure: engine, simulator, error; then the order of the policies and who wins."""
    rows = []
    for policy, cells in found.live.items():
        for name in FIGURES:
            error = found.errors[policy][name]
            shown = f"{error:+.1%}" if name in RELATIVE else f"{error:+.3f}"
            rows.append((policy, LABELS[name], _cell(cells[name]), _cell(found.simulated[policy][name]), shown))
    table = markdown_table(["policy", "figure", "on the engine", "in the simulator", "error of the simulator"], rows)
    order = " > ".join(sorted(found.live, key=lambda name: -found.live[name]["reward"].mean))
    lines = [
        table,
        "",
        f"Means and 95 % bootstrap intervals over {num_seeds} seeds. On the engine: {order}. {_verdict(found)}",
    ]
    if not math.isnan(found.spearman):
        lines.append(f"Spearman correlation of the mean rewards, simulator against engine: {found.spearman:.2f}.")
    return "\n".join(lines)


def _cell(cell: Cell) -> str:
    return f"{cell.mean:.4g} ({cell.low:.4g} to {cell.high:.4g})"


def _verdict(found: Comparison) -> str:
    """Whether the trained policy beats the tuned constant on the engine."""
    if not {"ppo", "tuned"} <= set(found.live):
        return ""
    ppo, tuned = found.live["ppo"]["reward"], found.live["tuned"]["reward"]
    if ppo.low > tuned.high:
        return "PPO beats the tuned constant, intervals apart."
    if tuned.low > ppo.high:
        return "The tuned constant beats PPO, intervals apart."
    return "The intervals of PPO and of the tuned constant overlap."


def as_json(found: Comparison) -> str:
    """Everything, for programs."""
    return json.dumps(asdict(found), indent=1)
