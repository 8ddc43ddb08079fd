"""A trace in four pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from llmserve_env.errors import ConfigError
from llmserve_env.workloads.traces.statistics import bands, dispersion, rate_over_time, span_s
from llmserve_env.workloads.traces.trace import Trace

FORMATS = ("png", "svg", "pdf")
_CURVE_WINDOWS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
_RATE_BINS = 240


def plot_trace(trace: Trace, path: Path) -> None:
    """Rate over time, dispersion by window, lengths, and outputs by prompt band, as one image file."""
    if path.suffix.lstrip(".").lower() not in FORMATS:
        raise ConfigError(
            f"cannot draw {path}: its name must end in one of {', '.join(f'.{name}' for name in FORMATS)}"
        )
    # Loaded only when a picture is requested, because it is slow to import.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 7.0), layout="constrained")
    axes = figure.subplots(2, 2)
    figure.suptitle(f"{trace.metadata.source}: {len(trace):,} requests in {span_s(trace):,.0f} s")
    _draw_rate(axes[0, 0], trace)
    _draw_dispersion(axes[0, 1], trace)
    _draw_lengths(axes[1, 0], trace)
    _draw_outputs(axes[1, 1], trace)
    figure.savefig(path, dpi=150)


def _draw_rate(axes: Any, trace: Trace) -> None:
    width_s, rates = rate_over_time(trace, _RATE_BINS)
    axes.stairs(rates, np.minimum(width_s * np.arange(len(rates) + 1), span_s(trace)), fill=True, color="tab:blue")
    axes.set(title=f"rate in steps of {width_s:g} s", xlabel="s", ylabel="requests/s")


def _draw_dispersion(axes: Any, trace: Trace) -> None:
    windows = [window for window in _CURVE_WINDOWS_S if span_s(trace) >= 10 * window]
    idc = [dispersion(trace.arrival_s, window, span_s(trace)).idc for window in windows]
    axes.plot(windows, idc, marker="o")
    axes.axhline(1.0, color="gray", linestyle=":", label="Poisson")
    axes.set(
        title="index of dispersion of counts", xlabel="window (s)", ylabel="variance / mean", xscale="log", yscale="log"
    )
    axes.legend()


def _draw_lengths(axes: Any, trace: Trace) -> None:
    levels = np.linspace(0.0, 1.0, 501)
    for name, tokens in (("prompt", trace.prompt_tokens), ("output", trace.output_tokens)):
        axes.plot(np.quantile(tokens, levels), levels, label=name)
    axes.set(title="lengths", xlabel="tokens", ylabel="share of requests up to", xscale="log")
    axes.legend()


def _draw_outputs(axes: Any, trace: Trace) -> None:
    ends = bands(trace.prompt_tokens)
    band_of = np.searchsorted(ends, trace.prompt_tokens)
    labels = [f"≤ {end}" for end in (*ends.tolist(), int(trace.prompt_tokens.max()))]
    boxes = [_box(trace.output_tokens[band_of == band], label) for band, label in enumerate(labels)]
    axes.bxp(boxes, showfliers=False)
    axes.tick_params(axis="x", rotation=45)
    axes.set(title="output by prompt band (5 to 95 %)", xlabel="prompt tokens", ylabel="output tokens", yscale="log")


def _box(values: Any, label: str) -> dict[str, Any]:
    names = ("whislo", "q1", "med", "q3", "whishi")
    return {"label": label, **dict(zip(names, np.percentile(values, (5, 25, 50, 75, 95)), strict=True))}
