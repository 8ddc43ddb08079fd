"""One report on a small log, simulated once for all tests of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmserve_env.evaluation.runner import Threads
from llmserve_env.planning.answer.protocol import Protocol
from llmserve_env.planning.report.gather import ReportData, gather
from llmserve_env.tasks.catalog import load_task
from tests.own_tasks import traced_task, write_log, write_task

PROTOCOL = Protocol(num_search_seeds=2, num_fresh_seeds=2, max_replicas=4)


@pytest.fixture(scope="session")
def report_data(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    """A report as short as it gets."""
    folder = tmp_path_factory.mktemp("report")
    write_log(folder)
    fields = traced_task(id="reported", name="Traffic & <tags>", steps=12, window_s=3)
    task = load_task(write_task(folder, fields))
    return gather(task, PROTOCOL, Threads(2))


@pytest.fixture(scope="session")
def report_file(report_data: ReportData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of that report."""
    from llmserve_env.planning.report.page import report_page

    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report_page(report_data, "llmserve report reported.yaml"), encoding="utf-8")
    return path
