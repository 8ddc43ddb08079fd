"""The experiment's table in Markdown, as docs/card.md shows it, and as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

from benchmarks.markdown import markdown_table
from tools.card_experiment.comparison import RELATIVE, Cell, Comparison
from tools.card_experiment.policies import TRAINED, TUNED

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


def as_markdown(found: Comparison) -> str:
    """A row per policy and figure: engine, simulator, error; then the order of the policies, who wins, and episodes."""
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
        f"Means and 95 % bootstrap intervals over episodes ({_counts(found)}). "
        f"By {LABELS[found.ranked_by]} on the engine: {order}.",
        *_verdict(found),
    ]
    if not math.isnan(found.spearman):
        lines.append(f"Spearman correlation of the policies, simulator against engine: {found.spearman:.2f}.")
    return "\n".join([*lines, "", _episodes(found)])


def as_short_markdown(found: Comparison) -> str:
    """A row per policy: what it is ranked by on both sides, and the simulator's errors."""
    ranked_by = found.ranked_by
    shown = ("ttft_mean_ms", "tpot_mean_ms", "attainment")
    rows = []
    for policy, cells in found.live.items():
        errors = [found.errors[policy][name] for name in shown]
        texts = [f"{e:+.1%}" if name in RELATIVE else f"{e:+.3f}" for name, e in zip(shown, errors, strict=True)]
        rows.append((policy, _cell(cells[ranked_by]), _cell(found.simulated[policy][ranked_by]), *texts))
    labels = [
        LABELS[ranked_by],
        "in the simulator",
        *(f"error of {LABELS[name].removesuffix(', ms')}" for name in shown),
    ]
    table = markdown_table(["policy", *labels], rows)
    return f"{table}\n\nSpearman correlation of the policies, simulator against engine: {found.spearman:.2f}."


def _counts(found: Comparison) -> str:
    """How many episodes each policy has."""
    return ", ".join(f"{name} {sum(pair.policy == name for pair in found.episodes)}" for name in found.live)


def _episodes(found: Comparison) -> str:
    """A row per episode, engine / simulator, with the health of its client."""
    rows = []
    for pair in found.episodes:
        figures = [
            f"{pair.live[name]:{shown}} / {pair.simulated[name]:{shown}}"
            for name, shown in (
                ("reward", ".3f"),
                ("attainment", ".3f"),
                ("ttft_mean_ms", ".0f"),
                ("tpot_mean_ms", ".1f"),
            )
        ]
        health, us = pair.health, pair.health.client_us_per_token
        silence = f"{health.silence_s:.2f} s at {health.silence_at_s:.1f} s"
        after = f"{health.reward_after:.3f} / {health.simulated_reward_after:.3f}"
        rows.append((pair.policy, str(pair.seed), *figures, silence, after, "" if us is None else f"{us:.0f}"))
    header = ["policy", "seed", "reward", "attainment", "TTFT mean, ms", "TPOT mean, ms"]
    return markdown_table([*header, "longest silence", "reward in the 2 s from it", "client CPU per token, µs"], rows)


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
