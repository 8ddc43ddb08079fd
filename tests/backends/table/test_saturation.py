"""What the export measures, against runs of the simulator set up another way and read with plain loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from llmserve_env.backends.table.grid import GridPoint
from llmserve_env.backends.table.lookup import LookupTable
from llmserve_env.backends.table.saturation import (
    SAMPLE_SEED,
    UNLIMITED_ROOM,
    WARM_UP_TURNS,
    backlog,
    num_requests,
    require_room,
    saturate,
)
from llmserve_env.engine.engine import Engine
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.errors import ConfigError
from llmserve_env.request_table import RequestTable
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import on_profile
from llmserve_env.units import PS_PER_MS, s_to_ps
from llmserve_env.workloads import sample

POINTS = [
    GridPoint(16, 1.0, 0, 0, 128),
    GridPoint(16, 0.5, 4, 0, 1024),
    GridPoint(16, 0.1, 0, 2, 1024),
    GridPoint(1, 0.5, 4, 2, 128),
]


def run_plainly(task: Task, point: GridPoint, requests: RequestTable) -> Engine:
    """The task's own replica, memory limit and all, serving these requests to the end."""
    fleet = replace(task.fleet, num_replicas=1, num_prefill_replicas=0, waiting_room=(UNLIMITED_ROOM,))
    engine = Engine(fleet, requests, SAMPLE_SEED)
    knobs = ServingKnobs(point.batch_size, point.kv_budget, point.spec_length, point.quant_tier)
    engine.serve(knobs, s_to_ps(100_000))
    return engine


def requests_of(task: Task, point: GridPoint) -> RequestTable:
    traffic = sample(task.workload, SAMPLE_SEED)
    return backlog(traffic, point.prompt_len_bucket, num_requests(point.batch_size))


@pytest.mark.parametrize("point", POINTS)
def test_a_backlog_runs_as_a_closed_loop_does(task: Task, point: GridPoint) -> None:
    requests, batch = requests_of(task, point), point.batch_size
    backlogged = run_plainly(task, point, requests).request_records()
    sent_at_ps = np.zeros(len(requests), np.int64)
    sent_at_ps[batch:] = np.sort(backlogged["finished_at_ps"])[:-batch]
    looped = run_plainly(task, point, replace(requests, arrival_at_ps=sent_at_ps)).request_records()
    for name in ("first_token_at_ps", "finished_at_ps"):
        np.testing.assert_array_equal(looped[name], backlogged[name])
    measured = range((WARM_UP_TURNS + 1) * batch, len(requests))
    ttft_ms = [(looped["first_token_at_ps"][k] - sent_at_ps[k]) / PS_PER_MS for k in measured]
    [figures] = saturate(task, [point])
    assert figures.ttft_p50_ms == pytest.approx(np.percentile(ttft_ms, 50))
    assert figures.ttft_p99_ms == pytest.approx(np.percentile(ttft_ms, 99))


@pytest.mark.parametrize("point", POINTS)
def test_the_exported_row_equals_a_plain_run(task: Task, table: LookupTable, point: GridPoint) -> None:
    requests = requests_of(task, point)
    engine = run_plainly(task, point, requests)
    rows = engine.request_records()
    order = np.argsort(rows["finished_at_ps"], kind="stable")
    first, last = WARM_UP_TURNS * point.batch_size, len(requests) - point.batch_size
    since, until = (int(rows["finished_at_ps"][order[k - 1]]) for k in (first, last))
    tokens = 0.0
    for begin, end, count in zip(
        rows["first_token_at_ps"], rows["finished_at_ps"], requests.output_tokens, strict=True
    ):
        tokens += count * max(min(end, until) - max(begin, since), 0) / (end - begin)
    gaps_ms = [
        (rows["finished_at_ps"][q] - rows["first_token_at_ps"][q]) / PS_PER_MS / (requests.output_tokens[q] - 1)
        for q in order[first:last]
    ]
    knobs = ServingKnobs(point.batch_size, point.kv_budget, point.spec_length, point.quant_tier)
    found = table.lookup(knobs, point.prompt_len_bucket)
    assert found.tps == pytest.approx(tokens / (until - since) * 1e12)
    assert found.tpot_ms == pytest.approx(np.median(gaps_ms))
    assert found.gpu_mem_gb == pytest.approx(float(engine.state.window[0]["peak_memory_bytes"]) / 1e9)
    assert not found.is_out_of_memory
    assert int(engine.state.window[0]["ooms"]) == 0


def test_the_memory_flag_is_where_the_simulator_runs_out_of_memory(task: Task, table: LookupTable) -> None:
    point = GridPoint(512, 1.0, 0, 0, 128)
    assert table.lookup(ServingKnobs(512, 1.0), 128).is_out_of_memory
    traffic = sample(task.workload, SAMPLE_SEED)
    requests = backlog(traffic, 128, 600)
    fleet = replace(task.fleet, num_replicas=1, waiting_room=(UNLIMITED_ROOM,))
    engine = Engine(fleet, requests, SAMPLE_SEED)
    engine.serve(ServingKnobs(point.batch_size, point.kv_budget), s_to_ps(20))
    assert int(engine.state.window[0]["ooms"]) > 0


def test_points_served_side_by_side_do_not_touch(task: Task) -> None:
    together = saturate(task, POINTS[:3])
    assert together == [saturate(task, [point])[0] for point in POINTS[:3]]


def test_a_backlog_takes_outputs_of_the_nearest_prompts(task: Task) -> None:
    traffic = RequestTable.of([0] * 600, [64] * 300 + [4000] * 300, [10] * 300 + [20] * 300)
    assert set(backlog(traffic, 64, 700).output_tokens) == {10}
    assert set(backlog(traffic, 8192, 700).output_tokens) == {20}


def test_a_point_whose_pool_cannot_hold_one_request_is_refused(task: Task) -> None:
    small = on_profile(task, memory_limit_gb=21.0).fleet
    point = GridPoint(1, 0.1, 0, 0, 8192)
    with pytest.raises(ConfigError, match=r"KV pool holds .* fewer than"):
        require_room(small, point, RequestTable.of([0], [8192], [100]))
    with pytest.raises(ConfigError, match="max_model_len"):
        require_room(small, point, RequestTable.of([0], [8192], [100_000]))


def test_a_limit_above_the_card_is_refused(task: Task) -> None:
    with pytest.raises(ConfigError, match=r"exceeds the 42\.5 GB"):
        on_profile(task, memory_limit_gb=80.0)
