"""A live comparison as lines of text and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from llmserve_env.evaluation.live_comparison import SERIES, LiveComparison

LABELS = {
    "ttft_ms": "TTFT of arrivals, ms",
    "itl_ms": "median gap of tokens, ms",
    "throughput_tps": "output tokens per second",
    "queue_depth": "requests waiting",
}
REAL, SIMULATED = "#1f4e79", "#d1603d"


def window_lines(comparison: LiveComparison) -> Iterator[str]:
    """A line per window: real / simulated."""
    yield "window " + "".join(f"{name:>26}" for name in SERIES)
    real, sim = comparison.real.windows, comparison.sim.windows
    for w in range(len(real["itl_ms"])):
        cells = (_pair(real[name][w], sim[name][w]) for name in SERIES)
        yield f"{w + 1:>6} " + "".join(f"{cell:>26}" for cell in cells)


def _pair(real: float, sim: float) -> str:
    error = f" {sim / real - 1.0:+6.0%}" if np.isfinite(real) and np.isfinite(sim) and real > 0.0 else "      –"
    return f"{_number(real)} / {_number(sim)}{error}"


def _number(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else "–"


def phase_lines(comparison: LiveComparison) -> Iterator[str]:
    """A block per stretch of constant load."""
    how = "costs of this run" if comparison.is_refitted else "costs of the profile"
    yield (
        f"seed {comparison.seed}, {how}: iterations took {comparison.pace:.3f} x the profile's time, front end "
        f"{comparison.front_end.request_ms:.1f} + {comparison.front_end.token_ms:.1f} ms, "
        f"load average {comparison.load_average:.1f}"
    )
    names = ("throughput_tps", "ttft_ms", "e2e_ms", "itl_ms", "queue_depth")
    yield f"{'rate':>6} {'requests':>8} " + "".join(f"{name:>28}" for name in names)
    for phase in comparison.phases:
        cells = (_pair(phase.real[name], phase.sim[name]) for name in names)
        yield f"{phase.rate_rps:>6.2f} {phase.requests:>8} " + "".join(f"{cell:>28}" for cell in cells)


def save_plot(comparisons: Sequence[LiveComparison], path: Path) -> None:
    """Both sides over the windows: a row per figure, a column per load."""
    from matplotlib.figure import Figure

    from llmserve_env.evaluation.plots import DOTS_PER_INCH

    figure = Figure(figsize=(4.2 * len(comparisons), 8.0), layout="constrained")
    axes = figure.subplots(len(SERIES), len(comparisons), sharex=True, squeeze=False)
    for column, comparison in zip(axes.T, comparisons, strict=True):
        for axis, name in zip(column, SERIES, strict=True):
            for side, played, colour in (("vLLM", comparison.real, REAL), ("simulator", comparison.sim, SIMULATED)):
                axis.plot(played.windows[name], label=side, color=colour, linewidth=1.3)
            axis.set_ylim(bottom=0.0)
        rates = ", ".join(f"{phase.rate_rps:g}" for phase in comparison.phases)
        column[0].set_title(f"{rates} requests per second", fontsize=10)
        column[-1].set_xlabel("window, s")
    for axis, name in zip(axes[:, 0], SERIES, strict=True):
        axis.set_ylabel(LABELS[name], fontsize=8)
    axes[0, 0].legend(fontsize=8)
    figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None})
