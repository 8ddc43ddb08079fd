"""A generator fitted to a trace: a workload that `llmserve_env.workloads.sample` draws from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.errors import ConfigError
from llmserve_env.workloads.spec import WorkloadSpec, parse_workload
from llmserve_env.workloads.traces.fit_arrivals import KINDS, ArrivalFit, Kind, fit_arrivals
from llmserve_env.workloads.traces.fit_lengths import output_law, token_law
from llmserve_env.workloads.traces.fit_sessions import Turns, sessions_law, turns_of
from llmserve_env.workloads.traces.statistics import clock_step_s, span_s
from llmserve_env.workloads.traces.trace import Trace

DEFAULT_TENANTS = 8
MAX_PREFIXES = 4
MIN_PREFIX_SHARE = 0.05
"""Least share of a tenant's sessions for which a shared prefix becomes a separate source."""
_OTHERS = "others"
_MAX_NAME = 64


@dataclass(frozen=True, slots=True)
class FitOptions:
    """Facts that a trace does not record, and how closely to follow it."""

    arrivals: Kind = "auto"
    num_tenants: int = DEFAULT_TENANTS
    """The busiest tenants become separate sources; the others share one."""
    horizon_s: int | None = None
    """Length of an episode; by default the length of the trace."""
    random_start: bool = False
    """Whether episodes start at a seeded point of a rate series instead of at its beginning."""
    ttft_slo_ms: float | None = None
    patience_s: float | None = None
    acceptance: float = 0.0

    def __post_init__(self) -> None:
        if self.arrivals not in KINDS:
            raise ConfigError(f"arrivals must be one of {', '.join(KINDS)}; got {self.arrivals!r}")
        if self.num_tenants < 1:
            raise ConfigError(f"num_tenants must be at least 1; got {self.num_tenants}")


@dataclass(frozen=True, slots=True)
class FittedWorkload:
    """A validated workload, the data it is written as, and notes about the fit."""

    spec: WorkloadSpec
    data: dict[str, Any]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """Sessions that become one source."""

    tenant: str
    turns: Turns
    prefix_tokens: int

    @property
    def has_sessions(self) -> bool:
        return self.turns.has_later or self.prefix_tokens > 0

    @property
    def rows(self) -> Array:
        """Every request, in order of arrival."""
        return np.sort(np.concatenate((self.turns.first, self.turns.later)))

    @property
    def arriving(self) -> Array:
        """Requests that open a session; later turns follow from them."""
        return self.turns.first if self.has_sessions else self.rows


def fit_trace(trace: Trace, options: FitOptions | None = None) -> FittedWorkload:
    """A workload with the trace's arrivals, lengths, tenants, sessions and shared prefixes.

    Raises:
        ConfigError: the wanted arrival process cannot be fitted to this trace, or an option is out of range.
    """
    options = options or FitOptions()
    sources, notes = [], _trace_notes(trace)
    for group in _groups(trace, options.num_tenants):
        source, found = _source(trace, group, options)
        sources.append(source)
        notes += found
    # The context window fits the longest recorded request and leaves room for an answer to every prompt.
    recorded = trace.prompt_tokens.astype(np.int64) + trace.output_tokens
    longest = max(int(recorded.max()), 2 + int(trace.prefix_tokens.max()))
    data: dict[str, Any] = {
        "horizon_s": options.horizon_s or max(1, round(span_s(trace))),
        "max_total_tokens": longest,
        "classes": [
            {"name": _class_name(priority), "ttft_slo_ms": options.ttft_slo_ms, "patience_s": options.patience_s}
            for priority in range(int(trace.priority.max()) + 1)
        ],
        "sources": sources,
    }
    return FittedWorkload(parse_workload(data), data, tuple(notes))


def _class_name(priority: int) -> str:
    return f"priority_{priority}"


def _trace_notes(trace: Trace) -> list[str]:
    step_s = clock_step_s(trace.arrival_s)
    if not step_s:
        return []
    return [
        f"the log's clock steps by {step_s:.3g} s: arrivals are spread over each step, and finer bursts are unknown"
    ]


def _groups(trace: Trace, num_tenants: int) -> Iterator[_Group]:
    """Sessions by tenant and shared prefix."""
    names = _source_names(trace.tenant_names, num_tenants)
    for tenant, name in enumerate(names):
        is_last = tenant == len(names) - 1
        rows = np.flatnonzero(trace.tenant >= tenant if is_last else trace.tenant == tenant)
        opens = turns_of(trace, rows).first
        for prefix_tokens, first in _by_prefix(trace, opens):
            yield _Group(name, turns_of(trace, _rows_of_sessions(trace, rows, first)), prefix_tokens)


def _source_names(tenant_names: tuple[str, ...], num_tenants: int) -> list[str]:
    if len(tenant_names) == 1:
        return ["all"]
    shown = [name if len(name) <= _MAX_NAME else f"tenant_{rank}" for rank, name in enumerate(tenant_names)]
    return shown if len(shown) <= num_tenants else [*shown[:num_tenants], _OTHERS]


def _by_prefix(trace: Trace, opens: Array) -> Iterator[tuple[int, Array]]:
    """Opening rows of each common prefix, then of all others together."""
    prefix = np.where(trace.prefix_tokens[opens] > 0, trace.prefix_id[opens], -1)
    found, counts = np.unique(prefix[prefix >= 0], return_counts=True)
    busiest = np.argsort(-counts, kind="stable")[:MAX_PREFIXES]
    common = found[busiest][counts[busiest] >= MIN_PREFIX_SHARE * len(opens)].tolist()
    for one in common:
        first = opens[prefix == one]
        yield int(np.median(trace.prefix_tokens[first])), first
    rest = opens[~np.isin(prefix, common)]
    if len(rest):
        yield 0, rest


def _rows_of_sessions(trace: Trace, rows: Array, first: Array) -> Array:
    """All turns of the sessions that these rows open."""
    session = trace.session_id[rows]
    named = trace.session_id[first]
    return rows[np.isin(rows, first) | ((session >= 0) & np.isin(session, named[named >= 0]))]


def _source(trace: Trace, group: _Group, options: FitOptions) -> tuple[dict[str, Any], list[str]]:
    fits = fit_arrivals(trace.arrival_s[group.arriving], span_s(trace), options.arrivals)
    if not fits:
        raise ConfigError(
            f"the arrivals of {group.tenant!r} have no ON/OFF process with their mean rate and dispersion; "
            "use --arrivals rate_series or auto"
        )
    where = f"{group.tenant}{f', prefix of {group.prefix_tokens} tokens' if group.prefix_tokens else ''}"
    notes = [f"{where}: {fit.describe()}{_also(rank)}" for rank, fit in enumerate(fits)]
    source: dict[str, Any] = {
        "tenant": group.tenant,
        "arrivals": _arrivals_data(fits[0], options),
        "kinds": _kinds(trace, group, options),
    }
    if group.has_sessions:
        source["sessions"], found = sessions_law(trace, group.turns, group.prefix_tokens)
        notes += [f"{where}: {note}" for note in found]
    return source, notes


def _also(rank: int) -> str:
    return "" if rank == 0 else " (not used; --arrivals chooses)"


def _arrivals_data(fit: ArrivalFit, options: FitOptions) -> dict[str, Any]:
    data = fit.process.model_dump(mode="json", exclude_defaults=True)
    if options.random_start and fit.process.kind == "rate_series":
        data["random_start"] = True
    return data


def _kinds(trace: Trace, group: _Group, options: FitOptions) -> list[dict[str, Any]]:
    """One kind per priority, with the lengths of its requests."""
    kinds = []
    arriving, everything = group.arriving, group.rows
    for priority in np.unique(trace.priority[arriving]).tolist():
        opening = arriving[trace.priority[arriving] == priority]
        rows = everything[trace.priority[everything] == priority]
        own = np.maximum(trace.prompt_tokens[opening].astype(np.int64) - group.prefix_tokens, 1)
        kinds.append(
            {
                "share": len(opening) / len(arriving),
                "class": _class_name(priority),
                "prompt_tokens": token_law(own),
                "output_tokens": output_law(trace.prompt_tokens[rows], trace.output_tokens[rows]),
                "acceptance": {"base": options.acceptance},
            }
        )
    return kinds
