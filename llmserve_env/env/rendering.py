"""Rendering an episode: the last window as text, or all windows so far as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from llmserve_env.engine.knobs import KNOB, mapping_from_knobs, named
from llmserve_env.env.episode import Episode

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN_KNOBS = ("batch_cap", "kv_budget_fraction", "quantization_tier")


def render_text(episode: Episode) -> str:
    """The last window in a few lines."""
    if episode.step_count == 0:
        return f"{episode.task.name}: no step yet"
    m = episode.batch.metrics[0]
    knobs = mapping_from_knobs(episode.batch.knobs[0], episode.task.action_knobs)
    place = f"{episode.task.name}  step {episode.step_count}/{episode.task.steps}  {episode.phase}"
    queue = f"waiting {m['queue_depth']:.0f}   running {m['active_requests']:.0f}   KV {m['kv_cache_occupancy']:.0%}"
    latency = f"TTFT p50/p99 {m['ttft_p50_ms']:.0f}/{m['ttft_p99_ms']:.0f} ms   ITL p50 {m['itl_p50_ms']:.1f} ms"
    return (
        f"{place}  reward {episode.reward:+.3f}\n"
        f"  traffic {m['window_rate_rps']:.0f} rps   {queue}\n"
        f"  {latency}   {m['throughput_tps']:.0f} tok/s  SLO {m['slo_attainment']:.0%}  {m['peak_memory_gb']:.1f} GB\n"
        f"  {'  '.join(f'{name}={value}' for name, value in knobs.items())}"
    )


def episode_plot(episode: Episode) -> Figure:
    """A matplotlib figure of traffic, TTFT and its SLO, memory and its limit, and the knobs in force."""
    from matplotlib.figure import Figure

    n, trajectory = episode.step_count, episode.trajectory
    t = (np.arange(n) + 1) * episode.task.window_s
    metrics = trajectory.metrics[:n]
    slo_ms = episode.task.workload.classes[0].ttft_slo_ms
    figure = Figure(figsize=(8.0, 6.4), dpi=100, layout="constrained")
    rows = figure.subplots(4, 1, sharex=True)
    rows[0].plot(t, metrics["window_rate_rps"], color="#1f4e79")
    rows[0].set_ylabel("requests/s")
    # A range of its own: where nothing has been waited for yet, all points are the same.
    slowest_ms = float(np.nanmax(metrics["ttft_p99_ms"], initial=0.0))
    rows[1].set_ylim(0.8, 2.0 * max(10.0, slo_ms or 0.0, slowest_ms if np.isfinite(slowest_ms) else 0.0))
    rows[1].semilogy(t, np.maximum(metrics["ttft_p50_ms"], 1.0), label="p50", color="#1f4e79")
    rows[1].semilogy(t, np.maximum(metrics["ttft_p99_ms"], 1.0), label="p99", color="#7fa8d1")
    if slo_ms is not None:
        rows[1].axhline(slo_ms, color="#b03030", linestyle="--", label="SLO")
    rows[1].set_ylabel("TTFT ms")
    rows[1].legend(loc="upper right", fontsize=7)
    rows[2].plot(t, metrics["peak_memory_gb"], color="#1f4e79")
    rows[2].axhline(episode.task.deployment.memory_limit_gb, color="#b03030", linestyle="--")
    rows[2].set_ylabel("GB per GPU")
    knobs = named(trajectory.knobs[:n])
    for knob in (KNOB[name] for name in DRAWN_KNOBS):
        label = knob.short if knob.high == 1 else f"{knob.short} / {knob.high:g}"
        rows[3].step(t, knobs[knob.name] / knob.high, label=label, where="pre")
    rows[3].set_ylabel("knobs")
    rows[3].set_xlabel("seconds")
    rows[3].legend(loc="upper right", fontsize=7, ncols=3)
    for second, phase in enumerate(episode.schedule.phase[: int(n * episode.task.window_s)]):
        if phase == "burst":
            for row in rows:
                row.axvspan(second, second + 1, color="#f3d9b1", linewidth=0)
    return figure


def render_frame(episode: Episode) -> npt.NDArray[np.uint8]:
    """The figure as an RGB array."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(episode_plot(episode))
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()  # type: ignore[no-untyped-call]
