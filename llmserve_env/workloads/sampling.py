"""Sample a table of requests from a workload and a seed."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.request_table import RequestTable
from llmserve_env.units import NEVER_PS, PS_PER_US, ms_to_ps, s_to_ps
from llmserve_env.workloads.arrivals import gap_cv
from llmserve_env.workloads.rates import arrival_times_s, rate_curve
from llmserve_env.workloads.rows import Rows, single_requests
from llmserve_env.workloads.sessions import converse
from llmserve_env.workloads.spec import Acceptance, ServiceClass, SourceSpec, WorkloadSpec
from llmserve_env.workloads.streams import ARRIVAL_GAPS, DRIFT_PHASE, REQUEST_KIND, SourceStreams

_US_PER_S = 1_000_000


def sample(spec: WorkloadSpec, seed: int) -> RequestTable:
    """The requests of one episode, sorted by arrival; simultaneous requests keep the order of their sources.

    The same spec and seed give the same table. Each source draws from its own streams, keyed by its index and by
    what is drawn, so appending a source or changing one property leaves every other draw unchanged.
    """
    parts, acceptance = [], []
    num_kinds = num_prefixes = num_sessions = 0
    for index, source in enumerate(spec.sources):
        streams = SourceStreams(seed, index)
        rows, drawn_sessions = _source_rows(spec, source, streams)
        acceptance.append(_acceptance(source, rows, streams))
        parts.append(rows.numbered_from(num_kinds, num_prefixes, num_sessions))
        num_kinds += len(source.kinds)
        num_prefixes += source.sessions.prefix_groups if source.sessions else 0
        num_sessions += drawn_sessions
    return _request_table(spec, _joined(parts), np.concatenate(acceptance))


def _source_rows(spec: WorkloadSpec, source: SourceSpec, streams: SourceStreams) -> tuple[Rows, int]:
    """Requests of one source within the horizon, and how many sessions it drew."""
    curve = rate_curve(source.arrivals, spec.horizon_s, spec.rate_scale, streams)
    if source.sessions:
        curve = curve.preceded_by(source.sessions.history_s)
    at_s = arrival_times_s(curve, gap_cv(source.arrivals), streams.generator(ARRIVAL_GAPS))
    kind = np.zeros(len(at_s), dtype=np.int64)
    if len(source.kinds) > 1:
        u = streams.generator(REQUEST_KIND).random(len(at_s))
        for bound in np.cumsum([shape.share for shape in source.kinds])[:-1]:
            kind += u >= bound
    if source.sessions is None:
        return single_requests(source.kinds, kind, at_s, spec.max_total_tokens, streams), 0
    rows = converse(source.sessions, source.kinds, kind, at_s, spec.max_total_tokens, streams)
    return rows.take((rows.arrival_s >= 0.0) & (rows.arrival_s < spec.horizon_s)), len(at_s)


def _acceptance(source: SourceSpec, rows: Rows, streams: SourceStreams) -> Array:
    laws = [shape.acceptance for shape in source.kinds]
    phase = streams.generator(DRIFT_PHASE).random() if any(law.drift_amplitude for law in laws) else 0.0
    if all(law == laws[0] for law in laws):
        return _law(laws[0], rows.prompt_tokens, rows.arrival_s, phase)
    result = np.empty(len(rows.kind))
    for i, law in enumerate(laws):
        which = np.flatnonzero(rows.kind == i)
        result[which] = _law(law, rows.prompt_tokens[which], rows.arrival_s[which], phase)
    return result


def _law(law: Acceptance, prompt_tokens: Array, at_s: Array, phase: float) -> Array:
    value: Array = np.full(len(at_s), law.base)
    if law.per_prompt_doubling:
        value += law.per_prompt_doubling * np.log2(prompt_tokens / law.reference_prompt_tokens)
    if law.drift_amplitude:
        value += law.drift_amplitude * np.sin(math.tau * (at_s / law.drift_period_s + phase))
    # The spec keeps acceptance within [0, 1]; clipping removes rounding errors at the ends.
    return np.clip(value, 0.0, 1.0, out=value)


def _joined(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    return Rows(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Rows)))


def _request_table(spec: WorkloadSpec, rows: Rows, acceptance: Array) -> RequestTable:
    """The rows in order of arrival, with the properties of their kind, class and tenant."""
    # Arrivals are whole microseconds, because the last bit of a logarithm differs between C libraries.
    at_us = np.floor(rows.arrival_s * _US_PER_S).astype(np.int64)
    # Rounding must not move the last arrival onto the horizon, which is not part of the episode.
    at_us = np.minimum(at_us, spec.horizon_s * _US_PER_S - 1)
    if len(spec.sources) > 1 or spec.sources[0].sessions:
        order = np.argsort(at_us, kind="stable")
        rows, at_us, acceptance = rows.take(order), at_us[order], acceptance[order]
    shapes = [(source, shape) for source in spec.sources for shape in source.kinds]
    names = spec.class_names
    priorities = [names.index(shape.class_name) for _, shape in shapes]
    tenants = spec.tenants
    return RequestTable(
        arrival_at_ps=at_us * PS_PER_US,
        prompt_tokens=rows.prompt_tokens,
        output_tokens=rows.output_tokens,
        priority=_each(priorities, rows.kind),
        tenant=_each([tenants.index(source.tenant) for source, _ in shapes], rows.kind),
        ttft_slo_ps=_each([_slo_ps(spec.classes[priority]) for priority in priorities], rows.kind),
        patience_ps=_each([_patience_ps(spec.classes[priority]) for priority in priorities], rows.kind),
        acceptance=acceptance,
        prefix_id=rows.prefix_id,
        prefix_tokens=_each([source.prefix_tokens for source, _ in shapes], rows.kind),
        session_id=rows.session_id,
    )


def _each(values: list[int], kind: Array) -> Array:
    """The value of each row's kind."""
    if min(values) == max(values):
        return np.full(len(kind), values[0], dtype=np.int64)
    return np.array(values, dtype=np.int64)[kind]


def _slo_ps(service: ServiceClass) -> int:
    return NEVER_PS if service.ttft_slo_ms is None else ms_to_ps(service.ttft_slo_ms)


def _patience_ps(service: ServiceClass) -> int:
    return NEVER_PS if service.patience_s is None else s_to_ps(service.patience_s)
