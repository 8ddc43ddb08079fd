"""Conversations of a trace: turns, pauses, tokens added per turn, and shared prefixes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.workloads.spec import MAX_TURNS
from llmserve_env.workloads.traces.fit_lengths import duration_law, token_law
from llmserve_env.workloads.traces.trace import Trace

MIN_LATER_SHARE = 0.02
"""Share of requests that must be later turns for sessions to be worth modelling."""


@dataclass(frozen=True, slots=True)
class Turns:
    """Rows of a trace, grouped into sessions; a request without a session forms its own."""

    first: Array
    """Rows that open a session, in order of arrival."""
    later: Array
    before: Array
    """The turn before each row of `later`; rows are ordered by session, then by time."""
    num_turns: Array
    """Number of turns of each session."""

    @property
    def has_later(self) -> bool:
        return len(self.later) > MIN_LATER_SHARE * (len(self.first) + len(self.later))


def turns_of(trace: Trace, rows: Array) -> Turns:
    """The sessions among these rows, given in order of arrival."""
    session = trace.session_id[rows]
    alone = session < 0
    # Rows without a session get numbers that no session uses.
    session = np.where(alone, -1 - np.arange(len(rows)), session)
    order = np.argsort(session, kind="stable")
    same = session[order][1:] == session[order][:-1]
    opens = np.concatenate(([True], ~same))
    return Turns(
        first=np.sort(rows[order[opens]]),
        later=rows[order[1:][same]],
        before=rows[order[:-1][same]],
        num_turns=np.bincount(np.cumsum(opens) - 1),
    )


def sessions_law(trace: Trace, turns: Turns, prefix_tokens: int) -> tuple[dict[str, Any], list[str]]:
    """The `sessions` part of a source, and notes on what it cannot represent."""
    law: dict[str, Any] = {"turns": {"kind": "constant", "value": 1}, "think_s": {"kind": "constant", "value": 0.0}}
    notes: list[str] = []
    if prefix_tokens:
        law["prefix_tokens"] = prefix_tokens
    if not turns.has_later:
        return law, notes
    if turns.num_turns.max() > MAX_TURNS:
        notes.append(f"sessions of up to {turns.num_turns.max()} turns end at {MAX_TURNS}, the most a workload allows")
    law["turns"] = token_law(np.minimum(turns.num_turns, MAX_TURNS))
    law["think_s"] = duration_law(trace.arrival_s[turns.later] - trace.arrival_s[turns.before])
    # Turns that fall into the episode from earlier sessions balance those that fall after its end.
    law["history_s"] = math.ceil(_longest_s(trace, turns))
    said = trace.prompt_tokens[turns.before].astype(np.int64) + trace.output_tokens[turns.before]
    new = trace.prompt_tokens[turns.later] - said
    shrunk = float(np.mean(new < 1))
    if shrunk:
        notes.append(f"{shrunk:.0%} of later turns drop part of the conversation; generated sessions only grow")
    law["user_tokens"] = token_law(new[new >= 1]) if np.any(new >= 1) else {"kind": "constant", "value": 1}
    return law, notes


def _longest_s(trace: Trace, turns: Turns) -> float:
    """From the first to the last turn of the longest session."""
    session = trace.session_id[turns.later]
    gaps_s = trace.arrival_s[turns.later] - trace.arrival_s[turns.before]
    return float(np.bincount(np.unique(session, return_inverse=True)[1], gaps_s).max())
