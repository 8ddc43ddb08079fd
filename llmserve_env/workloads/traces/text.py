"""Terminal output for a trace and for the fidelity of a fit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.workloads.traces.fidelity import Fidelity, Statistic
from llmserve_env.workloads.traces.fit_sessions import turns_of
from llmserve_env.workloads.traces.importing import ImportResult
from llmserve_env.workloads.traces.statistics import (
    PERCENTILES,
    Traffic,
    clock_step_s,
    dependence,
    rate_over_time,
    tenants,
    traffic_of,
)
from llmserve_env.workloads.traces.trace import Trace

_BARS = " ▁▂▃▄▅▆▇█"


def import_text(result: ImportResult) -> str:
    """What an import wrote and left out."""
    found = result.metadata
    return "\n".join(
        (
            f"{result.path}: {found.rows:,} requests from {found.source} ({found.format}), beginning {found.start}",
            f"left out: {found.bad_rows:,} bad rows, {found.failed_requests:,} failed requests",
            f"licence: {found.licence}",
            f"sha256 of the log: {found.sha256}",
        )
    )


def trace_text(trace: Trace, num_tenants: int = 10) -> str:
    """All figures of a trace."""
    traffic = traffic_of(trace)
    parts = [
        *_headline(trace, traffic),
        "",
        *_rate_lines(trace),
        "",
        *_burst_lines(trace, traffic),
        "",
        *_length_lines(trace, traffic),
        *_tenant_lines(trace, num_tenants),
        *_session_lines(trace),
    ]
    return "\n".join(parts)


def _headline(trace: Trace, traffic: Traffic) -> Iterator[str]:
    found = trace.metadata
    yield f"{found.source} ({found.format}), beginning {found.start}; licence: {found.licence}"
    yield (
        f"{traffic.num_requests:,} requests in {traffic.duration_s:,.1f} s, {traffic.mean_rps:.4g} rps; "
        f"{traffic.mean_rps * traffic.mean_prompt_tokens:,.0f} prompt and "
        f"{traffic.mean_rps * traffic.mean_output_tokens:,.0f} output tokens/s"
    )


def _rate_lines(trace: Trace) -> Iterator[str]:
    width_s, rates = rate_over_time(trace)
    yield f"rate, one mark per {width_s:g} s: {rates.min():.3g} to {rates.max():.3g} rps"
    yield sparkline(rates)


def sparkline(values: Array) -> str:
    """Heights relative to the largest value; only an exact zero is blank."""
    top = values.max(initial=0.0)
    if not top:
        return _BARS[0] * len(values)
    levels = np.ceil(values / top * (len(_BARS) - 1)).astype(int)
    return "".join(_BARS[level] for level in levels)


def _burst_lines(trace: Trace, traffic: Traffic) -> Iterator[str]:
    clock_s = clock_step_s(trace.arrival_s)
    yield f"burstiness: gap CV {traffic.gap_cv:.4g}, {traffic.empty_seconds_fraction:.1%} of seconds empty"
    if clock_s:
        yield f"  the clock of the log steps by {clock_s:.3g} s: figures of shorter windows describe the clock"
    yield f"  {'window':>8} {'IDC':>10} {'CV':>10} {'peak rps':>10}"
    for window, found in traffic.dispersion.items():
        yield f"  {window:>6} s {found.idc:>10.4g} {found.cv:>10.4g} {found.peak_rps:>10.4g}"


def _length_lines(trace: Trace, traffic: Traffic) -> Iterator[str]:
    heads = "".join(f"{'p' + str(percentile):>8}" for percentile in PERCENTILES)
    yield f"{'tokens':<8} {'mean':>8} {heads}"
    for name, mean, found in (
        ("prompt", traffic.mean_prompt_tokens, traffic.prompt_tokens),
        ("output", traffic.mean_output_tokens, traffic.output_tokens),
    ):
        yield f"{name:<8} {mean:>8.0f} {''.join(f'{found[p]:>8.0f}' for p in PERCENTILES)}"
    depends = dependence(trace.prompt_tokens, trace.output_tokens)
    yield (
        f"output and prompt: correlation of logarithms {depends.log_correlation:.3f}; "
        f"prompt deciles explain {depends.explained_by_band:.1%} of the variance of log output"
    )


def _tenant_lines(trace: Trace, limit: int) -> Iterator[str]:
    if not trace.has_tenants:
        return
    yield ""
    yield f"{len(trace.tenant_names):,} tenants; the busiest:"
    yield f"  {'share':>7} {'rps':>9} {'gap CV':>8} {'prompt p50':>11} {'output p50':>11}  name"
    for one in tenants(trace, limit):
        yield (
            f"  {one.share:>7.1%} {one.mean_rps:>9.4g} {one.gap_cv:>8.3g} "
            f"{one.median_prompt_tokens:>11.0f} {one.median_output_tokens:>11.0f}  {one.name}"
        )


def _session_lines(trace: Trace) -> Iterator[str]:
    if trace.has_sessions:
        turns = turns_of(trace, np.arange(len(trace)))
        yield ""
        yield (
            f"sessions: {len(turns.num_turns):,}, mean {turns.num_turns.mean():.3g} turns, longest "
            f"{turns.num_turns.max()}; {len(turns.later) / len(trace):.1%} of requests are later turns"
        )
    if trace.has_prefixes:
        shared = trace.prefix_tokens[trace.prefix_tokens > 0]
        of_tokens = shared.sum() / trace.prompt_tokens.sum()
        yield (
            f"shared prefixes: {len(np.unique(trace.prefix_id[trace.prefix_id >= 0]))}, in "
            f"{len(shared) / len(trace):.1%} of requests, {of_tokens:.1%} of prompt tokens"
        )


def fidelity_text(found: Fidelity) -> str:
    """The figures of the generator and of its trace, side by side."""
    lines = [
        f"fidelity over {found.num_seeds} seeds (median, and tenth to ninetieth percentile of seeds):",
        f"  {'figure':<28} {'trace':>10} {'generated':>10}  {'over seeds':^23} {'error':>7}  held to",
    ]
    lines += [_statistic_line(statistic) for statistic in found.statistics]
    missed = [statistic.name for statistic in found.statistics if not statistic.is_met]
    lines.append(f"not met: {', '.join(missed)}" if missed else "every figure that is held to a bar meets it")
    return "\n".join(lines)


def _statistic_line(statistic: Statistic) -> str:
    spread = f"{statistic.low:.4g} to {statistic.high:.4g}"
    held = "" if statistic.max_error is None else f"{statistic.max_error:.0%}{'' if statistic.is_met else '  NOT MET'}"
    numbers = f"{statistic.trace:>10.4g} {statistic.generated:>10.4g}  {spread:^23} {statistic.error:>7.1%}"
    return f"  {statistic.name:<28} {numbers}  {held}".rstrip()
