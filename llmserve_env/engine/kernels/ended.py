"""What became of the requests that ended since one last looked, against a promise for each of them."""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.fleet import UP
from llmserve_env.engine.kernels.compilation import entry_point, kernel
from llmserve_env.engine.layout import FINISHED, WAITING

ENDED_DTYPE = np.dtype(
    [
        ("judged", "i8"),
        ("finished", "i8"),
        ("met", "i8"),
        ("ttft_met", "i8"),
        ("tpot_met", "i8"),
        ("ttft_ps", "f8"),
        ("tpot_ps", "f8"),
        ("value", "f8"),
        ("late_value", "f8"),
        ("num_waiting", "i8"),
        ("num_late_open", "i8"),
        ("output_tokens", "i8"),
        ("running", "i8"),
        ("used_blocks", "i8"),
        ("blocks", "i8"),
    ]
)
"""Counts of ended requests of the urgent class, sums of their times, and what the kept promises are worth.

The other classes only have a deadline to finish by, their `slo_at_ps`: `late_value` is what those in time are worth,
and `num_late_open` counts those under way. `num_waiting` counts urgent requests that wait. The rest is of the
fleet: all running requests, and KV blocks of the replicas that are UP.
"""

POOL_TOTALS = ("waiting", "running", "used_blocks", "blocks")
"""Of each pool: the requests at its replicas, and the KV blocks of those that are UP."""


@kernel
def look_at_fleet(state, by_state, by_pool, out):
    """Requests and blocks of the replicas, how many of each pool are in each state, and each pool's `POOL_TOTALS`."""
    by_state[:] = 0
    by_pool[:] = 0
    out.output_tokens = state.window[0].output_tokens
    for r in range(state.replicas.shape[1]):
        replica = state.replicas[0, r]
        pool = by_pool[replica.life.pool]
        by_state[replica.life.pool, replica.life.state] += 1
        out.running += replica.num_running
        pool[0] += replica.num_waiting
        pool[1] += replica.num_running
        if replica.life.state == UP:
            pool[2] += replica.used_blocks
            pool[3] += replica.num_blocks
            out.used_blocks += replica.used_blocks
            out.blocks += replica.num_blocks


@entry_point
def collect_ended(state, open_rows, num_open, value, ttft_ps, tpot_ps, by_state, by_pool, ended):
    """Take the requests that have ended out of the first `num_open` of `open_rows`; returns how many stay."""
    requests, progress, out = state.requests[0], state.progress[0], ended[0]
    look_at_fleet(state, by_state, by_pool, out)
    kept = 0
    for k in range(num_open):
        q = open_rows[k]
        request, record = requests[q], progress[q]
        if record.status < FINISHED:
            open_rows[kept] = q
            kept += 1
            if request.priority > 0:
                out.num_late_open += 1
            elif record.status == WAITING:
                out.num_waiting += 1
            continue
        is_finished = record.status == FINISHED
        if request.priority > 0:
            if is_finished and record.finished_at_ps <= request.slo_at_ps:
                out.late_value += value[q]
            continue
        out.judged += 1
        if is_finished:
            gaps = max(request.output_tokens - 1, 1)
            ttft = record.first_token_at_ps - request.arrival_at_ps
            decode = record.finished_at_ps - record.first_token_at_ps
            out.finished += 1
            out.ttft_ps += ttft
            out.tpot_ps += decode / gaps
            out.ttft_met += ttft <= ttft_ps
            out.tpot_met += decode <= tpot_ps * gaps
            if ttft <= ttft_ps and decode <= tpot_ps * gaps:
                out.met += 1
                out.value += value[q]
    return kept
