"""Serving at saturation: one replica that always has `batch_size` requests outstanding, run in the simulator.

A closed loop needs no clients that react. Let everything arrive at once behind a first-come-first-served queue: with
`batch_cap` = B, the replica runs the same iterations as under B clients that each send their next request the moment
their last one finishes. Client j+B's request is sent at the j-th finish, so its TTFT is its first token minus that.
`tests/backends/table/test_saturation.py` runs both and compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.backends.table.grid import GridPoint, Measures
from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.engine import EngineBatch
from llmserve_env.engine.layout import FINISHED
from llmserve_env.errors import ConfigError
from llmserve_env.request_table import RequestTable
from llmserve_env.tasks.task import Task
from llmserve_env.units import BYTES_PER_GB, PS_PER_MS, PS_PER_S, S_PER_HOUR, s_to_ps
from llmserve_env.workloads import sample

SAMPLE_SEED = 0
"""Seed of the requests whose outputs are served, and of their draft verdicts."""
NUM_SHAPES = 256
"""Different outputs per prompt bucket; longer runs repeat them."""
WARM_UP_TURNS = 2
"""Turnovers of the batch before anything is measured: its requests start together and must fall out of step."""
MEASURED_TURNS = 2
MIN_MEASURED = 256
"""Requests measured at least, so that a small batch has a distribution too."""
RUN_LIMIT_S = 200_000.0
"""Simulated time by which the slowest point has long finished."""
UNLIMITED_ROOM = 1_000_000


def lone_replica(task: Task) -> Deployment:
    """One replica of the task's fleet that reports the memory it asks for and never runs out of it.

    Limit and reserve rise by the same amount: the KV pool keeps its size, and no iteration runs out of memory.
    """
    fleet = task.fleet
    largest = (
        fleet.token_budget * fleet.costs.activation_bytes_per_token
        + fleet.max_running * fleet.costs.logits_bytes_per_sequence
    )
    return replace(
        fleet,
        num_replicas=1,
        num_prefill_replicas=0,
        prefix_caching=False,
        waiting_room=(UNLIMITED_ROOM,),
        memory_limit_bytes=fleet.memory_limit_bytes + largest,
        activation_reserve_bytes=fleet.activation_reserve_bytes + largest,
    )


def num_requests(batch_size: int) -> int:
    """Requests of the warm-up, requests to measure, and one more batch that keeps the queue full to the end."""
    return (WARM_UP_TURNS + 1) * batch_size + max(MEASURED_TURNS * batch_size, MIN_MEASURED)


def backlog(traffic: RequestTable, prompt_tokens: int, count: int) -> RequestTable:
    """Requests of one prompt length that are all there at time zero.

    Outputs and draft acceptance are those of the task's requests with prompts nearest to this length.
    """
    distance = np.abs(np.log(traffic.prompt_tokens / prompt_tokens))
    nearest = np.sort(np.argsort(distance, kind="stable")[:NUM_SHAPES])
    rows = np.resize(nearest, count)
    return RequestTable.of(
        np.zeros(count, np.int64),
        np.full(count, prompt_tokens),
        traffic.output_tokens[rows],
        acceptance=traffic.acceptance[rows],
    )


def saturate(task: Task, points: Sequence[GridPoint]) -> list[Measures]:
    """Measures of some grid points of one batch size, simulated in one batch of engines."""
    batch_size, deployment = points[0].batch_size, lone_replica(task)
    if any(point.batch_size != batch_size for point in points):
        raise ValueError("points served side by side have one batch_size")
    traffic = sample(task.workload, SAMPLE_SEED)
    engine = EngineBatch(deployment, len(points), num_requests(batch_size))
    for i, point in enumerate(points):
        requests = backlog(traffic, point.prompt_len_bucket, num_requests(batch_size))
        require_room(deployment, point, requests)
        engine.load(i, requests, SAMPLE_SEED)
        knobs = engine.knobs[i]
        knobs["batch_cap"], knobs["kv_budget_fraction"] = batch_size, point.kv_budget
        knobs["speculation_depth"], knobs["quantization_tier"] = point.spec_length, point.quant_tier
    engine.advance(np.full(len(points), s_to_ps(RUN_LIMIT_S)))
    return [measures_of(task, engine, i, batch_size) for i in range(len(points))]


def require_room(deployment: Deployment, point: GridPoint, requests: RequestTable) -> None:
    """Refuse a point whose KV pool cannot hold its longest request: nothing could be measured there."""
    longest = int((requests.prompt_tokens + requests.output_tokens).max())
    if longest > deployment.max_model_len:
        raise ConfigError(
            f"a prompt of {point.prompt_len_bucket} tokens with this task's outputs needs {longest} tokens; "
            f"deployment.max_model_len is {deployment.max_model_len}: raise it or leave that bucket out"
        )
    blocks = deployment.num_blocks(point.kv_budget, point.quant_tier, point.spec_length > 0)
    needed = -(-(longest + point.spec_length) // deployment.block_tokens)
    if blocks < needed:
        raise ConfigError(
            f"at {point} the KV pool holds {blocks * deployment.block_tokens} tokens, fewer than the {longest} of the "
            "longest request: give the task more memory or a larger smallest kv_budget"
        )


def measures_of(task: Task, engine: EngineBatch, index: int, batch_size: int) -> Measures:
    """What the run of environment `index` says, after the warm-up and while the queue is full."""
    count = num_requests(batch_size)
    progress, requests = engine.state.progress[index][:count], engine.state.requests[index][:count]
    if (progress["status"] != FINISHED).any():
        raise ConfigError(f"batch {batch_size}: not all requests finished in {RUN_LIMIT_S:g} simulated seconds")
    order = np.argsort(progress["finished_at_ps"], kind="stable")
    finished_at_ps = progress["finished_at_ps"][order]
    first, last = WARM_UP_TURNS * batch_size, count - batch_size
    measured = order[first:last]
    tps = tokens_per_s(progress, requests, finished_at_ps[first - 1], finished_at_ps[last - 1])
    # Request k is sent at finish k - batch_size, from the first one after the warm-up on.
    sent = np.arange(first + batch_size, count)
    ttft_ms = (progress["first_token_at_ps"][sent] - finished_at_ps[sent - batch_size]) / PS_PER_MS
    gaps = requests["output_tokens"][measured] - 1
    decode_ms = (progress["finished_at_ps"] - progress["first_token_at_ps"])[measured] / PS_PER_MS
    return Measures(
        ttft_p50_ms=float(np.percentile(ttft_ms, 50)),
        ttft_p99_ms=float(np.percentile(ttft_ms, 99)),
        tpot_ms=float(np.median(decode_ms[gaps > 0] / gaps[gaps > 0])),
        tps=tps,
        gpu_mem_gb=float(engine.state.window[index]["peak_memory_bytes"]) / BYTES_PER_GB,
        cost_per_1k=cost_per_1k(task, float(engine.state.replicas[index, 0]["reserved_bytes"]), tps),
    )


def tokens_per_s(progress: Array, requests: Array, since_ps: int, until_ps: int) -> float:
    """Output rate between two instants, each request's tokens spread evenly from its first to its last.

    Whole requests at their finish would be unbiased too, but far noisier: a batch holds many half-done ones.
    """
    begin = progress["first_token_at_ps"].astype(float)
    end = np.maximum(progress["finished_at_ps"].astype(float), begin + 1.0)
    overlap = np.clip(np.minimum(end, until_ps) - np.maximum(begin, since_ps), 0.0, None) / (end - begin)
    return float((requests["output_tokens"] * overlap).sum() / (until_ps - since_ps) * PS_PER_S)


def cost_per_1k(task: Task, reserved_bytes: float, tps: float) -> float:
    """USD per 1,000 output tokens of a GPU that is always busy, by the task's own price of time and memory."""
    busy, limit = task.reward.busy_share, task.fleet.memory_limit_bytes
    gpus = 1.0 if task.reward.bill == "gpu_time" else busy + (1.0 - busy) * reserved_bytes / limit
    usd_per_s = task.fleet.costs.price_usd_per_hour / S_PER_HOUR * gpus
    return 1000.0 * usd_per_s / tps
