"""Requests for the next window of a fleet: those of clients, and jobs that were admitted among them."""

from __future__ import annotations

from llmserve_env.engine.kernels.compilation import entry_point, kernel


@kernel
def give(state, k, row, blank, worth, value, open_rows, at):
    """Write `row` as request k, which has not arrived."""
    state.requests[0, k] = row
    state.progress[0, k] = blank[0]
    worth[k] = value
    open_rows[at] = k


@entry_point
def give_requests(state, blank, rows, values, jobs, job_values, row_of, first, worth, open_rows, num_open):
    """Append `rows` and `jobs`, merged by arrival, to the first environment's requests; returns how many there are.

    `row_of[first:]` notes where the rows went. A session's home is kept at the row of its first request, which jobs
    have moved.
    """
    begin = k = state.environment[0].num_requests
    j = 0
    for i in range(rows.shape[0]):
        while j < jobs.shape[0] and jobs[j].arrival_at_ps < rows[i].arrival_at_ps:
            give(state, k, jobs[j], blank, worth, job_values[j], open_rows, num_open + k - begin)
            j += 1
            k += 1
        give(state, k, rows[i], blank, worth, values[i], open_rows, num_open + k - begin)
        row_of[first + i] = k
        root = rows[i].session_root
        if root >= 0:
            state.requests[0, k].session_root = row_of[root]
        k += 1
    for i in range(j, jobs.shape[0]):
        give(state, k, jobs[i], blank, worth, job_values[i], open_rows, num_open + k - begin)
        k += 1
    state.environment[0].num_requests = k
    return k
