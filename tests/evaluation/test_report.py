"""Tables in every form say the same, and say where they come from."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from llmserve_env.errors import ConfigError
from llmserve_env.evaluation.evaluate import EpisodeResult
from llmserve_env.evaluation.readme import END, START, rewrite_block
from llmserve_env.evaluation.report import (
    Provenance,
    as_csv,
    as_json,
    closed_gaps,
    commit_of,
    headline_table,
    latency_table,
    pool_requests,
    tabulate,
    text_table,
)
from llmserve_env.evaluation.results_page import results_page
from llmserve_env.request_outcomes import RequestSample
from llmserve_env.tasks.catalog import load_task

MADE = Provenance("llmserve benchmark", "1..2", "abc", "1", {"static_workload": 1, "bursty_workload": 1})
SCORES = {"tuned": 0.4, "ppo": 0.5, "clairvoyant": 0.6}


REQUESTS = RequestSample(
    (3, 0, 1, 0),
    {"ttft": np.array([100.0, 200.0, 300.0, np.inf]), "tpot": np.array([10.0]), "e2e": np.array([900.0, np.inf])},
    {"ttft": (4, 2), "tpot": (0, 0), "e2e": (0, 0)},
)


def results() -> list[EpisodeResult]:
    return [
        EpisodeResult(agent, task, seed, score + seed / 100, 10.0, 0.9, 1000.0, 0.05, {"slo": 0.5}, REQUESTS)
        for agent, score in SCORES.items()
        for task in MADE.task_versions
        for seed in (1, 2)
    ]


def test_json_of_one_agent_has_the_tasks_at_the_top() -> None:
    only = [r for r in results() if r.agent == "ppo"]
    data = json.loads(json.dumps(as_json(only, MADE)))
    score = data["tasks"]["bursty_workload"]["score"]
    assert score["mean"] == pytest.approx(0.515)
    assert set(score) == {"mean", "iqm", "ci95"}
    assert set(data["tasks"]["static_workload"]) == {
        "score",
        "return",
        "slo_attainment",
        "throughput_tps",
        "cost_usd",
        "requests",
    }
    assert (data["agent"], data["seeds"], data["commit"]) == ("ppo", "1..2", "abc")


def test_json_of_several_agents_keeps_them_apart() -> None:
    data = as_json(results(), MADE)
    assert list(data["agents"]) == ["tuned", "ppo", "clairvoyant"]


def test_percentiles_pool_the_requests_of_all_seeds_and_lost_ones_have_none() -> None:
    requests = as_json([r for r in results() if r.agent == "ppo"], MADE)["tasks"]["bursty_workload"]["requests"]
    assert (requests["requests"], requests["lost"]) == (8, 2)
    assert (requests["ttft_p50_ms"], requests["ttft_p99_ms"], requests["ttft_within_slo"]) == (200.0, None, 0.5)
    text = latency_table(pool_requests(results()))
    assert "200 ms" in text
    assert "lost" in text.splitlines()[3]


def test_csv_has_a_row_per_episode() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(results()))))
    assert len(rows) == 12
    assert rows[0]["agent"] == "tuned"
    assert float(rows[0]["grade_slo"]) == 0.5


def test_a_ceiling_is_marked_as_one() -> None:
    table = tabulate(results())
    assert "clairvoyant *" in text_table(table)
    assert "a ceiling, not a competitor" in text_table(table)
    assert "`clairvoyant` (ceiling: sees the future)" in headline_table(table, MADE)


def test_a_long_name_leaves_the_columns_apart() -> None:
    own = [replace(one, agent="my_long_file_name.py:MyAgent") for one in results()[:2]]
    for table in (text_table(tabulate(own)), latency_table(pool_requests(own))):
        assert "my_long_file_name.py:MyAgent  " in table
        assert "my_long_file_name.py:MyAgentTTFT" not in table


def test_markdown_says_how_to_make_it_again_and_what_of_the_gap_is_closed() -> None:
    text = headline_table(tabulate(results()), MADE)
    assert "| `ppo` | 0.515 [0.510, 0.520] |" in text
    assert "`llmserve benchmark`, commit abc" in text
    assert closed_gaps(tabulate(results()), list(MADE.task_versions)) == {
        "static_workload": pytest.approx(0.5),
        "bursty_workload": pytest.approx(0.5),
    }
    assert "static_workload 50%" in text


def test_the_table_goes_between_its_markers_once(tmp_path: Path) -> None:
    document = tmp_path / "README.md"
    document.write_text(f"before\n{START}\nold\n{END}\nafter\n", encoding="utf-8")
    assert rewrite_block(document, "new")
    assert document.read_text(encoding="utf-8") == f"before\n{START}\nnew\n{END}\nafter\n"
    assert not rewrite_block(document, "new")


def test_a_document_without_markers_is_left_alone(tmp_path: Path) -> None:
    document = tmp_path / "README.md"
    document.write_text("nothing here\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="add the two lines"):
        rewrite_block(document, "new")
    assert document.read_text(encoding="utf-8") == "nothing here\n"


def test_outside_of_git_the_commit_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_of(tmp_path) == "unknown"


def test_the_html_report_stands_alone() -> None:
    made = Provenance("x & y", "1..2", "abc", "1", {"static_workload": 1})
    rows = [r for r in results() if r.task_id == "static_workload"]
    page = results_page(tabulate(rows), rows, made, [load_task("static_workload")], ["heuristic"])
    assert "x &amp; y" in page
    assert page.count("data:image/png;base64,") >= 3
    assert "http://" not in page
    assert "https://" not in page
