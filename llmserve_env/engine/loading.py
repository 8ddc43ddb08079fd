"""Putting the requests of an episode into the engine's arrays."""

from __future__ import annotations

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.layout import REQUEST_DTYPE
from llmserve_env.engine.state import MUTABLE_FIELDS, EngineState, bytes_of, records
from llmserve_env.request_table import RequestTable
from llmserve_env.units import NEVER_PS


def request_records(requests: RequestTable, block_tokens: int) -> Array:
    """The requests as records."""
    rows = records((len(requests),), REQUEST_DTYPE)
    fill_requests(rows, requests, block_tokens)
    return rows


def fill_requests(rows: Array, requests: RequestTable, block_tokens: int) -> None:
    """Write the requests into records, with absolute deadlines and prefix-cache stream ids."""
    rows["arrival_at_ps"] = requests.arrival_at_ps
    longest_ps = NEVER_PS - requests.arrival_at_ps
    rows["slo_at_ps"] = requests.arrival_at_ps + np.minimum(requests.ttft_slo_ps, longest_ps)
    rows["deadline_at_ps"] = requests.arrival_at_ps + np.minimum(requests.patience_ps, longest_ps)
    for name in ("acceptance", "prompt_tokens", "output_tokens", "priority"):
        rows[name] = getattr(requests, name)
    shared = requests.prefix_id >= 0
    rows["prefix_blocks"] = np.where(shared, requests.prefix_tokens // block_tokens, 0)
    rows["prefix_stream"] = np.where(shared, requests.prefix_id, 0)
    rows["session_root"], rows["own_stream"] = -1, -2 - np.arange(len(requests))
    if requests.session_id.max(initial=-1) >= 0:
        fill_sessions(rows, requests)


def fill_sessions(rows: Array, requests: RequestTable) -> None:
    """Let the turns of a session share their stream, and the row that remembers the session's home."""
    in_session = requests.session_id >= 0
    num_prefixes = int(requests.prefix_id.max(initial=-1)) + 1
    _, first_row, of_row = np.unique(requests.session_id, return_index=True, return_inverse=True)
    rows["session_root"][in_session] = first_row[of_row][in_session]
    rows["own_stream"][in_session] = num_prefixes + requests.session_id[in_session]


def load_requests(
    state: EngineState, index: int, pristine: EngineState, deployment: Deployment, requests: RequestTable, seed: int
) -> None:
    """Put environment `index` at time zero with these requests pending."""
    check_requests(requests, deployment, state.progress.shape[1])
    for name in MUTABLE_FIELDS:
        if name != "progress":
            bytes_of(getattr(state, name)[index : index + 1])[...] = bytes_of(getattr(pristine, name))
    make_pending(state, index, pristine, slice(0, len(requests)))
    fill_requests(state.requests[index, : len(requests)], requests, deployment.block_tokens)
    environment = state.environment[index]
    environment["num_requests"], environment["seed"] = len(requests), seed


def make_pending(state: EngineState, index: int, pristine: EngineState, rows: slice) -> None:
    """Reset the progress of these rows to that of requests still to come; rows without a request are never read."""
    bytes_of(state.progress[index, rows])[...] = bytes_of(pristine.progress[0, rows])


def check_requests(requests: RequestTable, deployment: Deployment, max_requests: int) -> None:
    """Raise for requests that this deployment can never serve, or the arrays have no room for."""
    too_long = requests.prompt_tokens + requests.output_tokens > deployment.max_model_len
    if too_long.any():
        row = int(np.argmax(too_long))
        total = int(requests.prompt_tokens[row] + requests.output_tokens[row])
        raise ValueError(
            f"request {row} needs {total} tokens; max_model_len is {deployment.max_model_len}: "
            "shorten the request or raise the limit"
        )
    if len(requests) > max_requests:
        raise ValueError(f"{len(requests)} requests exceed the {max_requests} this state was made for")
    if len(requests) and int(requests.priority.max()) >= len(deployment.waiting_room):
        raise ValueError(
            f"priority {int(requests.priority.max())} has no waiting room; "
            f"the deployment has {len(deployment.waiting_room)} classes"
        )
