"""Task files and logs that are wrong: every message names the file, the line or field, and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmserve_env.errors import LLMServeError
from llmserve_env.tasks.catalog import load_task
from tests.own_tasks import own_task, traced_task, write_log

Fields = dict[str, Any]


def put(*path: str | int, value: Any) -> Callable[[Fields], None]:
    """Set one field."""

    def change(fields: Fields) -> None:
        at: Any = fields
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value

    return change


def drop(*path: str | int) -> Callable[[Fields], None]:
    """Leave one field out."""

    def change(fields: Fields) -> None:
        at: Any = fields
        for step in path[:-1]:
            at = at[step]
        del at[path[-1]]

    return change


SOURCE = ("workload", "sources", 0)
KIND = (*SOURCE, "kinds", 0)
CLASS = ("workload", "classes", 0)

BAD_TASKS: list[tuple[Callable[[Fields], None], str, str]] = [
    (drop("id"), "id", "Field required"),
    (drop("deployment"), "deployment", "Field required"),
    (put("colour", value="red"), "unknown field colour", "allowed: id, version"),
    (put("steps", value=0), "steps", "greater than or equal to 1"),
    (put("steps", value="many"), "steps", "valid integer"),
    (put("window_s", value=-1), "window_s", "greater than 0"),
    (put("version", value="two"), "version", "valid integer"),
    (put("difficulty", value="brutal"), "difficulty", "'easy', 'medium', 'hard' or 'custom'"),
    (put("workload", "horizon_s", value=10), "workload.horizon_s", "must cover 40 s"),
    (put("workload", "classes", value=[]), "workload.classes", "at least 1 item"),
    (put("workload", "classes", 0, "ttft_slo_ms", value=0), "workload.classes[0].ttft_slo_ms", "greater than 0"),
    (put(*CLASS, "tpot_slo_ms", value=-5), "workload.classes[0].tpot_slo_ms", "greater than 0"),
    (put(*CLASS, "slo_share", value=0), "workload.classes[0].slo_share", "greater than 0"),
    (put(*CLASS, "slo_percentiles", value={"ttft_p100_ms": 5}), "slo_percentiles", "as in ttft_p99_ms"),
    (put(*CLASS, "slo_percentiles", value={"ttft_p99_ms": 0}), "slo_percentiles", "greater than 0"),
    (put(*CLASS, "slo_percentiles", value=[5]), "slo_percentiles", "must be a mapping such as"),
    (put("workload", "rate_scale", value=-2), "workload.rate_scale", "greater than 0"),
    (put(*SOURCE, "arrivals", value={"kind": "magic"}), "workload.sources[0].arrivals", "'poisson'"),
    (put(*SOURCE, "arrivals", "rate_rps", value=-1), "workload.sources[0].arrivals.rate_rps", "greater than or equal"),
    (put(*SOURCE, "arrivals", "rate", value=3), "workload.sources[0].arrivals", "allowed: kind, rate_rps"),
    (put(*KIND, "share", value=0.5), "workload.sources[0]", "sum to 1"),
    (put(*KIND, "class", value="vip"), "sources[0].kinds[0].class 'vip'", "allowed: chat"),
    (put(*KIND, "prompt_tokens", "low", value=5000), "workload.sources[0].kinds[0].prompt_tokens", "at most high"),
    (put(*KIND, "output_tokens", "kind", value="guess"), "workload.sources[0].kinds[0].output_tokens", "'uniform'"),
    (put(*KIND, "acceptance", "base", value=1.4), "workload.sources[0].kinds[0].acceptance.base", "equal to 1"),
    (put("deployment", "profile", value="tpu-v9"), "deployment.profile", "choose one of a100-40gb"),
    (put("deployment", "host", value="toaster"), "deployment.host", "choose one of bare-metal"),
    (put("deployment", "async_scheduling", value="often"), "deployment.async_scheduling", "valid boolean"),
    (put("deployment", "replicas", value=0), "deployment.replicas", "greater than or equal to 1"),
    (put("deployment", "replicas", value=1.5), "deployment.replicas", "valid integer"),
    (put("deployment", "price_usd_per_hour", value=0), "deployment.price_usd_per_hour", "greater than 0"),
    (put("deployment", "waiting_room", value=[1, 2]), "deployment.waiting_room", "one per class"),
    (put("deployment", "gpus", value=4), "deployment", "allowed: profile, tiers, replicas"),
    (put("knobs", value={"active": ["turbo"]}), "knobs.active[0]", "'batch_cap'"),
    (put("knobs", value={"active": ["prefill_decode_split"]}), "prefill_replicas", "nothing to switch on"),
    (put("grader", value={"weights": {"slo": 0.4}}), "grader", "add up to 1"),
    (put("grader", value={"weights": {"joy": 1.0}}), "grader.weights.joy", "'throughput'"),
    (put("reward", value={"class_weights": {"vip": 1.0}}), "reward.class_weights", "exactly the classes ['chat']"),
    (put("reward", value={"itl_comfort_ms": 90}), "reward", "below itl_limit_ms"),
]

BAD_TRACES: list[tuple[Callable[[Fields], None], str, str]] = [
    (put("workload", "trace", value={}), "workload.trace.file", "Field required"),
    (put("workload", "trace", "file", value="no.csv"), "workload.trace: file", "relative to the task's folder"),
    (drop("workload", "trace", "format"), "workload.trace: format", "name its format: azure, burstgpt"),
    (put("workload", "trace", "format", value="excel"), "workload.trace", "allowed: azure, burstgpt"),
    (put("workload", "trace", "format", value="azure"), "workload.trace", "TIMESTAMP"),
    (put("workload", "trace", "scale", value=0), "workload.trace.scale", "greater than 0"),
    (
        put("workload", "trace", "arrivals", value="chaos"),
        "workload.trace.arrivals",
        "'auto', 'rate_series' or 'on_off'",
    ),
    (put("workload", "trace", "columns", value={"mood": "x"}), "workload.trace", "allowed: ['arrival'"),
    (put("workload", "trace", "time_unit", value="fortnight"), "workload.trace", "allowed: auto, iso"),
    (put("workload", "trace", "delimiter", value=";;"), "workload.trace", "one character"),
    (put("workload", "trace", "speed", value=2), "workload.trace", "allowed: file, format"),
    (put("workload", "max_total_tokens", value=10), "workload.trace", "no request fits max_total_tokens 10"),
    (put("workload", "classes", value=[]), "workload.classes", "at least 1 item"),
    (put("steps", value=900), "workload.trace", "repeat: true"),
]


def message(folder: Path, fields: Fields, change: Callable[[Fields], None]) -> str:
    change(fields)
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(fields, sort_keys=False), encoding="utf-8")
    with pytest.raises(LLMServeError) as caught:
        load_task(path)
    return str(caught.value)


@pytest.mark.parametrize(("change", "field", "allowed"), BAD_TASKS, ids=[f"{f}-{a}" for _, f, a in BAD_TASKS])
def test_a_bad_task_names_file_line_field_and_what_is_allowed(
    tmp_path: Path, change: Callable[[Fields], None], field: str, allowed: str
) -> None:
    said = message(tmp_path, own_task(), change)
    assert re.search(r"mine\.yaml:\d+: ", said), said
    assert field in said, said
    assert allowed in said, said


@pytest.mark.parametrize(("change", "field", "allowed"), BAD_TRACES, ids=[f"{f}-{a}" for _, f, a in BAD_TRACES])
def test_a_bad_trace_section_names_file_line_field_and_what_is_allowed(
    tmp_path: Path, change: Callable[[Fields], None], field: str, allowed: str
) -> None:
    write_log(tmp_path)
    said = message(tmp_path, traced_task(), change)
    assert re.search(r"mine\.yaml:\d+: ", said), said
    assert field in said, said
    assert allowed in said, said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id: [1, 2\nname: x\n", r"mine\.yaml:2: not valid YAML"),
        ("id: a\n  name: b\n", r"mine\.yaml:2: not valid YAML"),
        ("- 1\n- 2\n", "a task file is a mapping of fields; got list"),
        ("", "a task file is a mapping of fields; got NoneType"),
        ("id: 'unfinished\n", r"mine\.yaml:\d+: not valid YAML"),
    ],
)
def test_what_is_no_mapping_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(LLMServeError, match=expected):
        load_task(path)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"id: \xff\xfe\n")
    with pytest.raises(LLMServeError, match=r"mine\.yaml: not UTF-8"):
        load_task(path)


def test_a_missing_file_says_what_may_be_given(tmp_path: Path) -> None:
    with pytest.raises(LLMServeError, match=r"no such task file; give the path of a YAML file, or one of static"):
        load_task(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("abc,10,10", "requests.csv:3: "),
        ("1.0,ten,10", "requests.csv:3: "),
        ("1.0,10,-4", "requests.csv:3: "),
        ("1.0,10", "requests.csv:3: "),
    ],
)
def test_a_log_without_a_usable_row_names_its_lines(tmp_path: Path, line: str, expected: str) -> None:
    (tmp_path / "requests.csv").write_text(
        f"arrival_s,prompt_tokens,output_tokens\nnonsense,1,1\n{line}\n", encoding="utf-8"
    )
    said = message(tmp_path, traced_task(), lambda fields: None)
    assert re.search(r"mine\.yaml:\d+: workload\.trace: .*requests\.csv", said), said
    assert expected in said, said
