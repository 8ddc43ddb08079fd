"""The decision log: what the scheduler did, row by row, for comparison with recorded runs and with the reference.

Callers ask first whether there is a log (`sim.log.size > 0`), which keeps the functions here off the hot path.
"""

from __future__ import annotations

from llmserve_env.engine.kernels.compilation import rare_kernel
from llmserve_env.engine.log_layout import LOG_EMISSION, LOG_FINISH, LOG_ITEM, LOG_ITERATION, LOG_PREEMPTION


@rare_kernel
def next_row(sim, r, at_ps):
    """The next row of the log, with this replica and time.

    A full log keeps counting and overwrites its last row, so that the caller can tell that it was too short.
    """
    count = sim.environment.log_count
    sim.environment.log_count = count + 1
    row = sim.log[min(count, sim.log.size - 1)]
    row.replica = r
    row.at_ps = at_ps
    return row


@rare_kernel
def log_iteration(sim, r, at_ps, started_at_ps, ended_at_ps, free_blocks_before):
    """Log an iteration that was scheduled at `at_ps`; its items and preemptions precede it."""
    row = next_row(sim, r, at_ps)
    row.kind = LOG_ITERATION
    row.started_at_ps = started_at_ps
    row.ended_at_ps = ended_at_ps
    row.free_blocks_before = free_blocks_before
    row.free_blocks_after = sim.replicas[r].num_blocks - sim.replicas[r].used_blocks


@rare_kernel
def log_item(sim, r, at_ps, iteration, i):
    """Log that slot i takes part in an iteration that is about to start."""
    batch = sim.replicas[r].batch
    row = next_row(sim, r, at_ps)
    row.kind = LOG_ITEM
    row.request = batch.request[i]
    row.tokens = iteration.tokens[i]
    row.computed_before = batch.computed[i]
    row.drafts = max(iteration.drafts[i], 0)


@rare_kernel
def log_preemption(sim, r, at_ps, q):
    """Log that request q went back to the queue."""
    row = next_row(sim, r, at_ps)
    row.kind = LOG_PREEMPTION
    row.request = q


@rare_kernel
def log_emission(sim, r, at_ps, q, tokens):
    """Log tokens of request q that reached its client."""
    row = next_row(sim, r, at_ps)
    row.kind = LOG_EMISSION
    row.request = q
    row.tokens = tokens


@rare_kernel
def log_finish(sim, r, at_ps, q):
    """Log that request q has all its tokens."""
    row = next_row(sim, r, at_ps)
    row.kind = LOG_FINISH
    row.request = q
