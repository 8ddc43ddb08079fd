"""Window records of an episode that the simulator does not serve, kept by the simulator's own kernels.

The caller reports what happened to requests as events; nothing here decides anything. Compiled on the first call, which
a simulated episode never makes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from llmserve_env.engine.kernels.compilation import entry_point, kernel
from llmserve_env.engine.kernels.queues import dequeue, enqueue
from llmserve_env.engine.kernels.recording import count_arrival, count_gaps, finish, first_token, reject
from llmserve_env.engine.kernels.slots import abandon
from llmserve_env.engine.kernels.window import judge_overdue, open_window
from llmserve_env.engine.layout import RUNNING, WAITING

TOKENS, GAPS, FINISH, REJECT, ABANDON = range(5)
EVENT_DTYPE = np.dtype([("kind", "i8"), ("request", "i8"), ("at_ps", "i8"), ("tokens", "i8"), ("gap_ps", "i8")])
"""Something that happened to a request. GAPS belong to no request: `tokens` gaps of `gap_ps` each."""


class Books(NamedTuple):
    """The records of one episode; replica 0 holds all requests without a first token."""

    environment: Any
    window: Any
    replicas: Any
    requests: Any
    progress: Any


@kernel
def leave_queue(books, q):
    """Request q stops waiting for its first token, if it still does."""
    if books.progress[q].status == WAITING:
        dequeue(books, 0, q)
        books.progress[q].status = RUNNING


@kernel
def receive(books, q, at_ps, tokens):
    """Tokens reach the client of request q together; none where the caller counts tokens in bulk."""
    progress, window = books.progress[q], books.window
    window.output_tokens += tokens
    if progress.first_token_at_ps < 0:
        leave_queue(books, q)
        first_token(books, q, at_ps, books.environment.quantization_tier)
    elif tokens > 0:
        count_gaps(window, (at_ps - progress.last_token_at_ps) // tokens, tokens)
    progress.emitted += tokens
    progress.last_token_at_ps = at_ps


@entry_point
def record_window(state, num_requests, events, now_ps):
    """Open a window, let requests arrive up to `num_requests`, apply the events in order, judge what is overdue."""
    books = Books(
        state.environment[0],
        state.window[0],
        state.replicas[0],
        state.requests[0],
        state.progress[0],
    )
    environment, requests, progress = books.environment, books.requests, books.progress
    open_window(books)
    for q in range(environment.next_arrival, num_requests):
        count_arrival(books, q)
        enqueue(books, 0, q, requests[q].arrival_at_ps)
    environment.next_arrival = num_requests
    for i in range(events.shape[0]):
        event = events[i]
        q = event.request
        if event.kind == TOKENS:
            receive(books, q, event.at_ps, event.tokens)
        elif event.kind == GAPS:
            count_gaps(books.window, event.gap_ps, event.tokens)
        elif event.kind == FINISH:
            requests[q].output_tokens = progress[q].emitted
            finish(books, q, progress[q].last_token_at_ps, environment.quantization_tier)
        elif event.kind == REJECT:
            leave_queue(books, q)
            reject(books, q, event.at_ps)
        else:
            leave_queue(books, q)
            requests[q].deadline_at_ps = event.at_ps
            abandon(books, q)
    environment.now_ps = now_ps
    judge_overdue(books)
