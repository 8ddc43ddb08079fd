from __future__ import annotations

from pathlib import Path

import pytest

from llmserve_env.backends.table.export import export_table
from llmserve_env.backends.table.grid import Grid
from llmserve_env.backends.table.lookup import LookupTable
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import Task

TINY_GRID = Grid(
    batch_size=(1, 16, 128, 512),
    kv_budget=(0.1, 0.5, 1.0),
    spec_length=(0, 4),
    quant_tier=(0, 2),
    prompt_len_bucket=(128, 1024),
)


@pytest.fixture(scope="session")
def task() -> Task:
    # Without a host, so that a client's clock and the engine's agree.
    return load_task("static_workload-v1")


@pytest.fixture(scope="session")
def table_path(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "tiny.parquet"
    export_table(task, TINY_GRID, path, command="llmserve table export")
    return path


@pytest.fixture
def table(table_path: Path) -> LookupTable:
    return LookupTable.load(table_path)
