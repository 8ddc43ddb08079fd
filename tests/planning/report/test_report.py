"""The report says what was simulated, and needs nothing from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from llmserve_env.agents.constant import tuned_knobs
from llmserve_env.planning.report.charts import pareto
from llmserve_env.planning.report.flags import memory_utilisation, vllm_command, vllm_flags
from llmserve_env.planning.report.gather import BEST_CONSTANT, DEFAULTS, ReportData
from llmserve_env.planning.report.page import SECTIONS, headline, report_page
from llmserve_env.planning.report.policy import sentences, traffic_levels
from llmserve_env.tasks.catalog import load_task

VOID = {"meta", "img", "br"}


class Balance(HTMLParser):
    """Collects addresses and checks that tags close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_self_contained(report_file: Path) -> None:
    text = report_file.read_text(encoding="utf-8")
    parser = Balance()
    parser.feed(text)
    assert parser.open == []
    assert all(address.startswith(("data:image/svg+xml;base64,", "#")) for address in parser.addresses)
    assert "<script" not in text and "http" not in re.sub(r"base64,[^\"]*", "", text)
    assert {f"#{name}" for name, _ in SECTIONS} <= set(parser.addresses)


def test_names_from_the_task_are_escaped(report_file: Path) -> None:
    assert "Traffic &amp; &lt;tags&gt;" in report_file.read_text(encoding="utf-8")


def test_the_same_figures_make_the_same_page(report_data: ReportData, report_file: Path) -> None:
    assert report_page(report_data, "llmserve report reported.yaml") == report_file.read_text(encoding="utf-8")


def test_the_page_says_which_policy_it_follows(report_data: ReportData) -> None:
    assert report_data.adaptive.name in ("planner", "heuristic")
    assert "llmserve train reported.yaml" in report_data.adaptive_reason
    assert report_data.adaptive.name in headline(report_data)


def test_controls_are_compared_on_the_same_seeds(report_data: ReportData) -> None:
    names = [played.name for played in report_data.controls]
    assert names[:2] == [DEFAULTS, BEST_CONSTANT]
    assert {episode.seed for played in report_data.controls for episode in played.episodes} == {300_000}


def test_the_constant_is_kept_for_the_tuned_agent(report_data: ReportData) -> None:
    assert tuned_knobs(report_data.task).tolist() == report_data.constant.tolist()


def test_the_recording_is_replayed_and_compared(report_data: ReportData) -> None:
    assert report_data.recorded is not None
    assert report_data.recorded.replayed_attainment is not None
    assert 0.0 <= report_data.recorded.replayed_attainment <= 1.0
    assert report_data.recorded.fidelity.statistic("mean rps").error < 0.2


def test_the_policy_is_described_by_traffic(report_data: ReportData) -> None:
    levels = traffic_levels(report_data.adaptive.episodes)
    assert [level.name for level in levels] == ["quiet", "usual", "busy"]
    assert levels[0].prompt_tps <= levels[1].prompt_tps <= levels[2].prompt_tps
    assert len(sentences(report_data.task, levels)) == len(report_data.task.knobs.active)


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ({"batch_cap": 96, "kv_budget_fraction": 0.5}, ["--max-num-seqs 96"]),
        ({"speculation_depth": 2}, ["--speculative-config", '"num_speculative_tokens": 2']),
        ({"quantization_tier": "INT8"}, ["--quantization compressed-tensors"]),
        (
            {"quantization_tier": "INT4", "priority_routing": True},
            ["--quantization awq_marlin", "--scheduling-policy priority"],
        ),
    ],
)
def test_flags_follow_the_knobs(knobs: dict[str, Any], expected: list[str]) -> None:
    task = load_task("bursty_workload")
    command = vllm_command(task, task.knobs_from_mapping(knobs))
    assert all(part in command for part in expected)
    assert "--num-gpu-blocks-override" not in command


def test_the_memory_flag_reserves_what_the_simulator_reserves() -> None:
    task = load_task("bursty_workload")
    rows = [task.knobs_from_mapping({"kv_budget_fraction": share}) for share in (1.0, 0.5)]
    full, half = (memory_utilisation(task, row) for row in rows)
    assert full == pytest.approx(task.fleet.memory_limit_bytes / task.fleet.costs.memory_bytes)
    pool = next(flag for flag in vllm_flags(task, rows[1]) if "blocks" in flag.name)
    assert (full - half) * task.fleet.costs.memory_bytes == pytest.approx(
        int(pool.value) * task.fleet.block_bytes, rel=0.01
    )


def test_a_front_has_no_point_that_is_beaten() -> None:
    points = [(3.0, 0.9), (1.0, 0.5), (2.0, 0.4), (2.0, 0.8), (4.0, 0.9)]
    assert pareto(points) == [(1.0, 0.5), (2.0, 0.8), (3.0, 0.9)]
