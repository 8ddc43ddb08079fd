"""The plan's lookup table and data files, and a server that plays on the table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from llmserve_env.backends.table.export import measure_grid
from llmserve_env.backends.table.files import DATA_FOLDER, SHIPPED_TABLE
from llmserve_env.backends.table.grid import AXES, MEASURES, Grid
from llmserve_env.backends.table.lookup import LookupTable, jitter_stream
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.env.episode import Episode
from llmserve_env.server.application import create_app
from llmserve_env.tasks.catalog import load_task
from tests.mission.asked import asked
from tests.server.conftest import settings
from tools.make_data import json_files, table_task

CORNER = {"batch_size": 512, "kv_budget": 1.0}
Call = Any


@pytest.fixture
def on_table() -> Iterator[TestClient]:
    with TestClient(create_app(settings(mode="table"))) as found:
        yield found


@asked("batch points 1,4,8,16,32,64,128,256,512; KV points 0.1,0.25,0.5,0.75,1.0", "`traces_llama3_8b.parquet`")
def test_the_table_has_the_plans_columns_and_grid() -> None:
    table = pq.read_table(SHIPPED_TABLE)
    assert table.column_names == [*AXES, *MEASURES]
    assert list(MEASURES) == ["ttft_p50_ms", "ttft_p99_ms", "tpot_ms", "tps", "gpu_mem_gb", "cost_per_1k"]
    values = {name: sorted(set(table.column(name).to_pylist())) for name in AXES}
    assert values == {
        "batch_size": [1, 4, 8, 16, 32, 64, 128, 256, 512],
        "kv_budget": [0.1, 0.25, 0.5, 0.75, 1.0],
        "spec_length": [0, 1, 2, 4, 8],
        "quant_tier": [0, 1, 2],
        "prompt_len_bucket": list(range(8)),
    }
    assert table.num_rows == 9 * 5 * 5 * 3 * 8
    assert SHIPPED_TABLE.stat().st_size < 300_000


@asked("Lookup table of the plan", "written by `python -m tools.make_data` from the simulator")
def test_the_table_says_what_the_simulator_says() -> None:
    grid = Grid((1, 32, 128), (0.5, 1.0), (0, 2), (0,), (128, 1024))
    fresh, table = measure_grid(table_task(), grid), LookupTable.load(SHIPPED_TABLE)
    for row in range(len(grid)):
        point = {name: fresh[name][row] for name in AXES}
        knobs = ServingKnobs(int(point["batch_size"]), point["kv_budget"], int(point["spec_length"]))
        found = table.lookup(knobs, float(point["prompt_len_bucket"]))
        assert [getattr(found, name) for name in MEASURES] == pytest.approx([fresh[name][row] for name in MEASURES])


@asked(
    "linear interpolation over batch and KV, nearest over depth and tier; ±5 % Gaussian jitter on latencies", "the same"
)
def test_the_table_is_linear_over_batch_and_kv_and_jitters_latencies() -> None:
    table = LookupTable.load(SHIPPED_TABLE)
    ends = [table.lookup(ServingKnobs(batch, 0.5), 128).tps for batch in (32, 64)]
    assert table.lookup(ServingKnobs(48, 0.5), 128).tps == pytest.approx(np.mean(ends))
    assert table.lookup(ServingKnobs(32, 0.5, 3), 128) == table.lookup(ServingKnobs(32, 0.5, 2), 128)
    noisy = [table.lookup(ServingKnobs(32, 0.5), 128, jitter_stream(0, step)).ttft_p50_ms for step in range(2000)]
    plain = table.lookup(ServingKnobs(32, 0.5), 128).ttft_p50_ms
    assert np.std(noisy) / plain == pytest.approx(0.05, rel=0.1)


@asked("above 40 GB an out-of-memory flag", "the flag of the table, at batch 512 with KV 1.0")
def test_batch_512_with_the_whole_kv_budget_triggers_the_memory_flag() -> None:
    table = LookupTable.load(SHIPPED_TABLE)
    assert table.memory_limit_gb == 40
    assert table.lookup(ServingKnobs(512, 1.0), 128).is_out_of_memory
    assert not table.lookup(ServingKnobs(512, 0.75), 128).is_out_of_memory
    assert not table.lookup(ServingKnobs(128, 1.0), 128).is_out_of_memory


@asked(
    "batch 512 with KV 1.0 triggers the memory flag.",
    "in the simulator too, from version 2 of the tasks on",
    "vLLM stops at such a start: `CUDA out of memory occurred when warming up sampler` (`gpu_model_runner.py`)",
)
def test_the_simulator_runs_out_of_memory_at_the_same_corner() -> None:
    task = load_task("bursty_workload-v2")
    episode = Episode(task)
    episode.reset(42)
    for _ in range(10):
        episode.step(task.knobs_from_mapping(CORNER))
    assert episode.played().totals()["ooms"] >= task.deployment.replicas


@asked("More batch means more tokens/s up to a threshold", "the table's own figures")
def test_more_batch_means_more_tokens_up_to_a_threshold() -> None:
    table = LookupTable.load(SHIPPED_TABLE)
    rates = [table.lookup(ServingKnobs(batch), 1024).tps for batch in table.grid.batch_size]
    assert all(np.diff(rates[:6]) > 0)
    assert rates[-1] < 1.2 * rates[-3]


@asked("Acceptance falls with depth and prompt complexity.", "tokens per second gained by a draft fall with both")
def test_speculation_gains_less_with_depth() -> None:
    table = LookupTable.load(SHIPPED_TABLE)
    rates = [table.lookup(ServingKnobs(1, 1.0, depth), 128).tps for depth in (0, 1, 2, 4, 8)]
    per_draft = np.diff(rates) / np.diff([0, 1, 2, 4, 8])
    assert all(np.diff(per_draft) < 0)


@asked("Workload state: arrival rate, mean prompt", "`sharegpt_dist.json` and `workload_configs.json`, from the tasks")
def test_the_data_files_are_those_that_the_code_gives() -> None:
    assert {path.name for path in json_files()} == {"sharegpt_dist.json", "workload_configs.json"}
    for path, text in json_files().items():
        assert path.read_text(encoding="utf-8") == text
    shares = json.loads((DATA_FOLDER / "sharegpt_dist.json").read_text(encoding="utf-8"))["bucket_shares"]
    assert (len(shares), sum(shares)) == (8, pytest.approx(1.0, abs=1e-4))


@asked("Simulator output per window also", "`LLMSERVE_MODE=table` plays a whole episode from the table and grades it")
def test_a_server_plays_a_whole_episode_from_the_table(on_table: TestClient) -> None:
    assert on_table.get("/runtime").json()["mode"] == "table"
    session = on_table.post("/reset", json={"task_id": 1}).json()["session_id"]
    answers = [on_table.post("/step", json={"session_id": session, "action": {}}).json() for _ in range(200)]
    assert (answers[-1]["done"], answers[-1]["metadata"]["mode"]) == (True, "table")
    grade = on_table.post("/grader", json={"session_id": session}).json()
    assert (grade["mode"], grade["score"]) == ("table", grade["plan"]["score"])
    replayed = on_table.post("/grader", json={"task_id": 1, "episode_log": answers})
    assert (replayed.status_code, "table mode" in replayed.json()["detail"]) == (422, True)


@asked("batch 512 with KV 1.0 triggers the memory flag", "in table mode too: nothing is served until it changes")
def test_a_table_episode_runs_out_of_memory_at_the_corner_and_recovers(on_table: TestClient) -> None:
    session = on_table.post("/reset", json={"task_id": 2}).json()["session_id"]
    windows = []
    for action in (*[CORNER] * 3, *[{"batch_size": 128, "kv_budget": 0.75}] * 3):
        stepped = on_table.post("/step", json={"session_id": session, "action": action}).json()
        windows.append((stepped["info"]["metrics"]["oom"], stepped["info"]["metrics"]["tps"] > 0))
    assert windows[:3] == [(True, False)] * 3
    assert windows[-1] == (False, True)
