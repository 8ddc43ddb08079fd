"""Rows of the decision log: what the engine decided and when, for replays of recorded runs and for the laws."""

from __future__ import annotations

import numpy as np

LOG_ITERATION, LOG_ITEM, LOG_PREEMPTION, LOG_EMISSION, LOG_FINISH = range(5)
LOG_DTYPE = np.dtype(
    [
        ("kind", "i8"),
        ("replica", "i8"),
        ("request", "i8"),
        ("tokens", "i8"),
        ("computed_before", "i8"),
        ("drafts", "i8"),
        ("at_ps", "i8"),
        ("started_at_ps", "i8"),
        ("ended_at_ps", "i8"),
        ("free_blocks_before", "i8"),
        ("free_blocks_after", "i8"),
    ]
)
"""A row of the decision log. Every kind fills `replica`; fields that a kind does not have are 0.

An iteration has its times and free blocks; `at_ps` is when it was scheduled. Its items (request, tokens,
computed_before, drafts) and preemptions (request, at_ps) come before it. An emission has request, tokens and at_ps, a
finish request and at_ps.
"""
