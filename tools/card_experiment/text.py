"""The experiment's table in Markdown, as docs/card.md shows it, and as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

from benchmarks.markdown import markdown_table
from tools.card_experiment.comparison import RELATIVE, TRAINED, TUNED, Cell, Comparison

LABELS = {
    "score": "score",
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
        for name, cell in cells.items():
            error = found.errors[policy][name]
            shown = f"{error:+.1%}" if name in RELATIVE else f"{error:+.3f}"
            rows.append((policy, LABELS[name], _cell(cell), _cell(found.simulated[policy][name]), shown))
    table = markdown_table(["policy", "figure", "on the engine", "in the simulator", "error of the simulator"], rows)
    order = " > ".join(sorted(found.live, key=lambda name: -found.live[name][found.ranked_by].mean))
    lines = [
        table,
        "",
        f"Means and 95 % bootstrap intervals over {num_seeds} seeds. "
        f"By {LABELS[found.ranked_by]} on the engine: {order}.",
        *_verdict(found),
    ]
    if not math.isnan(found.spearman):
        lines.append(f"Spearman correlation of the policies, simulator against engine: {found.spearman:.2f}.")
    return "\n".join(lines)


def _cell(cell: Cell) -> str:
    return f"{cell.mean:.4g} ({cell.low:.4g} to {cell.high:.4g})"


def _verdict(found: Comparison) -> list[str]:
    """Whether the trained policy beats the tuned constant on the engine, and by how much on the same requests."""
    if not found.gains:
        return []
    trained, tuned = (found.live[name][found.ranked_by] for name in (TRAINED, TUNED))
    if trained.low > tuned.high:
        said = "PPO beats the tuned constant, intervals apart."
    elif tuned.low > trained.high:
        said = "The tuned constant beats PPO, intervals apart."
    else:
        said = "The intervals of PPO and of the tuned constant overlap."
    live, simulated = (_cell(found.gains[side]) for side in ("live", "simulated"))
    return [f"{said} Gain of PPO over it, seed by seed: {live} on the engine, {simulated} in the simulator."]


def as_json(found: Comparison) -> str:
    """Everything, for programs."""
    return json.dumps(asdict(found), indent=1)
