"""Clients of a fleet: sessions whose turns follow their starts, and single requests, as one table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.sections import KindSpec, LengthSpec, TrafficSpec
from llmserve_env.fleet.series import RateSeries
from llmserve_env.rng import ARRIVALS_STREAM, LENGTHS_STREAM, MIX_STREAM, stream

BIN_S = 10.0
"""Rates are constant within a bin."""
HISTORY_S = 2_400.0
"""Sessions that start so long before an episode are already under way in it."""
MAX_DISPERSION = 10.0
DRIFT_TIME_S = 5_400.0
"""Over which the share of a kind forgets where it was."""
MAX_TURNS = 64
TURNS_SHAPE = 6.0
"""Shape of the gamma-distributed number of turns: sessions of one kind are alike, unlike with a geometric number."""


@dataclass(frozen=True, slots=True)
class Turns:
    """Requests of all kinds in order of arrival, and the sessions they belong to."""

    arrival_s: Array
    prompt_tokens: Array
    history_tokens: Array
    """Leading tokens of the prompt that earlier turns of the session had sent or received."""
    output_tokens: Array
    session: Array
    """-1 for a single request."""
    session_start_s: Array
    """[session]; negative for one under way at the start of the episode."""
    session_end_s: Array


def sample_turns(
    spec: TrafficSpec, series: RateSeries, start_s: float, length_s: float, max_tokens: int, seed: int
) -> Turns:
    """All requests of an episode that begins at `start_s` of the series."""
    bins = np.arange(-HISTORY_S, length_s, BIN_S)
    load, dispersion = series.at(start_s + bins + BIN_S / 2)
    arrivals, lengths, mix = (stream(seed, name) for name in (ARRIVALS_STREAM, LENGTHS_STREAM, MIX_STREAM))
    crowds = _crowds(spec, bins, mix)
    shares = _shares(spec, len(bins), mix)
    parts = []
    for kind, share in zip(spec.kinds, shares, strict=True):
        rate = spec.mean_rps * share * load / kind.turns * (1.0 + crowds * kind.has_crowds)
        starts = _starts(rate, np.minimum(dispersion, MAX_DISPERSION), bins, arrivals)
        parts.append(_sessions(kind, starts, length_s, max_tokens, lengths))
    return _together(parts)


def _crowds(spec: TrafficSpec, bins: Array, mix: np.random.Generator) -> Array:
    """Extra session starts per bin, as multiples of the usual ones."""
    extra = np.zeros(len(bins))
    if spec.crowds is None:
        return extra
    span_s = bins[-1] + BIN_S - bins[0]
    for _ in range(mix.poisson(spec.crowds.per_day * span_s / 86_400.0)):
        begin = bins[0] + span_s * mix.random()
        size = spec.crowds.size * np.exp(spec.crowds.size_sigma * mix.standard_normal())
        length = spec.crowds.length_s * np.exp(spec.crowds.length_sigma * mix.standard_normal())
        # A crowd swells and ebbs like half a sine.
        phase = (bins + BIN_S / 2 - begin) / length
        extra += np.where((phase > 0) & (phase < 1), size * np.sin(np.pi * phase), 0.0)
    return extra


def _shares(spec: TrafficSpec, num_bins: int, mix: np.random.Generator) -> list[Array]:
    """Share of each kind per bin: its mean, times a slow log-normal wander where the kind drifts."""
    keep = np.exp(-BIN_S / DRIFT_TIME_S)
    logs = []
    for kind in spec.kinds:
        if kind.drift == 0.0:
            logs.append(np.zeros(num_bins))
            continue
        noise = mix.standard_normal(num_bins) * np.sqrt(1.0 - keep * keep)
        level, wander = mix.standard_normal(), np.empty(num_bins)
        for k in range(num_bins):
            level = keep * level + noise[k]
            wander[k] = level
        logs.append(kind.drift * wander - kind.drift**2 / 2)
    weights = [kind.share * np.exp(log) for kind, log in zip(spec.kinds, logs, strict=True)]
    if all(kind.drift == 0.0 for kind in spec.kinds):
        return weights
    total = np.sum(weights, axis=0)
    return [weight / total for weight in weights]


def _starts(rate: Array, dispersion: Array, bins: Array, arrivals: np.random.Generator) -> Array:
    """Start times with the given rate per bin, and counts whose variance is `dispersion` times their mean."""
    mean = rate * BIN_S
    variance = np.maximum(dispersion - 1.0, 1e-6) / np.maximum(mean, 1e-9)
    counts = arrivals.poisson(mean * arrivals.gamma(1.0 / variance, variance))
    starts: Array = np.repeat(bins, counts) + BIN_S * arrivals.random(int(counts.sum()))
    return starts


def _draw(spec: LengthSpec, count: int, lengths: np.random.Generator) -> Array:
    drawn = np.exp(np.log(spec.median) + spec.sigma * lengths.standard_normal(count))
    tokens: Array = np.clip(drawn, 1.0, spec.most).astype(np.int64)
    return tokens


def _sessions(kind: KindSpec, starts: Array, length_s: float, max_tokens: int, lengths: np.random.Generator) -> Turns:
    """The turns of the sessions of one kind that fall into the episode."""
    count = len(starts)
    if kind.turns == 1.0:
        starts = starts[starts >= 0.0]
        prompt, output = (_draw(spec, len(starts), lengths) for spec in (kind.opening, kind.output))
        output = np.minimum(output, max_tokens - prompt)
        alone, none = np.full(len(starts), -1, np.int64), np.zeros(len(starts), np.int64)
        return Turns(starts, prompt, none, output, alone, np.zeros(0), np.zeros(0))
    later = np.round(lengths.gamma(TURNS_SHAPE, (kind.turns - 1.0) / TURNS_SHAPE, count))
    turns = 1 + np.clip(later, 0, MAX_TURNS - 1).astype(np.int64)
    total = int(turns.sum())
    session = np.repeat(np.arange(count), turns)
    first = np.cumsum(turns) - turns
    gap = np.exp(np.log(kind.gap_s) + kind.gap_sigma * lengths.standard_normal(total))
    if kind.setup_s > 0.0:
        setup = np.exp(np.log(kind.setup_s) + kind.setup_sigma * lengths.standard_normal(count))
        gap[(first + 1)[turns > 1]] = setup[turns > 1]
    gap[first] = 0.0
    added = _draw(kind.added, total, lengths) if kind.added is not None else np.zeros(total, np.int64)
    added[first] = _draw(kind.opening, count, lengths)
    output = _draw(kind.output, total, lengths)
    waited, said = np.cumsum(gap), np.cumsum(added + output)
    arrival = starts[session] + waited - waited[first][session]
    before = (said - said[first][session]) + (added + output)[first][session] - (added + output)
    prompt = before + added
    # A conversation that outgrows the model's context ends, and so does the episode for turns after it.
    fits = prompt + output <= max_tokens
    ends = np.maximum.reduceat(np.where(fits, arrival, -np.inf), first) if count else np.zeros(0)
    kept = fits & (arrival >= 0.0) & (arrival < length_s)
    return Turns(arrival[kept], prompt[kept], before[kept], output[kept], session[kept], starts, ends)


def _together(parts: list[Turns]) -> Turns:
    """All kinds in order of arrival, with sessions numbered through."""
    offset, sessions = 0, []
    for part in parts:
        sessions.append(np.where(part.session >= 0, part.session + offset, -1))
        offset += len(part.session_start_s)
    arrival = np.concatenate([part.arrival_s for part in parts])
    order = np.argsort(arrival, kind="stable")
    return Turns(
        arrival[order],
        np.concatenate([part.prompt_tokens for part in parts])[order],
        np.concatenate([part.history_tokens for part in parts])[order],
        np.concatenate([part.output_tokens for part in parts])[order],
        np.concatenate(sessions)[order],
        np.concatenate([part.session_start_s for part in parts]),
        np.concatenate([part.session_end_s for part in parts]),
    )
