"""Conversations, in which each turn extends the tokens of the previous one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.workloads.distributions import seconds, tokens
from llmserve_env.workloads.rates import RateCurve
from llmserve_env.workloads.rows import Rows, outputs, prompts
from llmserve_env.workloads.spec import RequestKind, Sessions
from llmserve_env.workloads.streams import (
    NUM_TURNS,
    OUTPUT_TOKENS,
    PREFIX_GROUP,
    PROMPT_TOKENS,
    THINK_TIME,
    SourceStreams,
)

_LEVELS = (np.arange(4096) + 0.5) / 4096


def converse(
    sessions: Sessions,
    kinds: Sequence[RequestKind],
    kind: Array,
    start_s: Array,
    max_total_tokens: int,
    streams: SourceStreams,
) -> Rows:
    """Every turn of the sessions that start at `start_s`, earlier turns first."""
    n = len(start_s)
    num_turns = tokens(sessions.turns, streams.generator(NUM_TURNS).random(n))
    group = streams.generator(PREFIX_GROUP).integers(sessions.prefix_groups, size=n)
    group = group if sessions.prefix_tokens else np.full(n, -1)
    arrival_s, said, open_sessions = start_s, np.full(n, sessions.prefix_tokens), np.full(n, True)
    turns = []
    for turn in range(int(num_turns.max(initial=0))):
        new = _new_tokens(sessions, kinds, kind, turn, streams.generator(PROMPT_TOKENS, turn).random(n))
        prompt = said + new
        open_sessions = open_sessions & (num_turns > turn) & (prompt < max_total_tokens)
        if turn:
            arrival_s = arrival_s + seconds(sessions.think_s, streams.generator(THINK_TIME, turn).random(n))
        output = outputs(kinds, kind, streams.generator(OUTPUT_TOKENS, turn).random(n), prompt)
        output = np.minimum(output, max_total_tokens - prompt)
        said = prompt + output
        rows = np.flatnonzero(open_sessions)
        turns.append((arrival_s[rows], kind[rows], prompt[rows], output[rows], group[rows], rows))
    if not turns:
        return Rows(*(np.empty(0, dtype=np.int64) for _ in range(6)))
    return Rows(*(np.concatenate(column) for column in zip(*turns, strict=True)))


def request_rate(sessions: Sessions, curve: RateCurve, horizon_s: int) -> Array:
    """Expected requests in each second: starts, and later turns after their think times.

    Sessions that the context window would end early are counted in full.
    """
    history_s = sessions.history_s
    span_s = history_s + horizon_s
    starts = curve.preceded_by(history_s).per_second(-history_s, horizon_s)
    later_s = np.minimum(seconds(sessions.think_s, _LEVELS), span_s)
    whole_s = later_s.astype(np.int64)
    # A fraction of a second is divided between its two neighbours, which preserves the mean.
    weights = np.concatenate((1.0 - (later_s - whole_s), later_s - whole_s)) / len(_LEVELS)
    gap = np.bincount(np.concatenate((whole_s, whole_s + 1)), weights, minlength=span_s)[:span_s]
    num_turns = tokens(sessions.turns, _LEVELS)
    total, turn_rate = np.zeros(span_s), starts
    for turn in range(int(num_turns.max())):
        total += np.mean(num_turns > turn) * turn_rate
        turn_rate = np.convolve(turn_rate, gap)[:span_s]
    return total[history_s:]


def _new_tokens(sessions: Sessions, kinds: Sequence[RequestKind], kind: Array, turn: int, u: Array) -> Array:
    if turn == 0 or sessions.user_tokens is None:
        return prompts(kinds, kind, u)
    return tokens(sessions.user_tokens, u)
