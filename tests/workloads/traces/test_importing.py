from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from llmserve_env.errors import TraceFormatError
from llmserve_env.workloads.traces import rows
from llmserve_env.workloads.traces.formats import FORMATS, resolve_format
from llmserve_env.workloads.traces.importing import import_trace
from llmserve_env.workloads.traces.trace import load_trace
from tests.workloads.traces.conftest import Importer

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:05,110,27
"""
BURSTGPT = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,s1,2.0,ChatGPT,472,18,490,Conversation log
45,,1.0,ChatGPT,1087,230,1317,API log
46,,1.0,ChatGPT,0,0,0,API log
118,s1,3.0,ChatGPT,417,276,693,Conversation log
"""
MOONCAKE = """{"timestamp": 0, "input_length": 1100, "output_length": 50, "hash_ids": [0, 1, 4]}
{"timestamp": 3000, "input_length": 1200, "output_length": 4, "hash_ids": [0, 2, 3]}
"""
OPENAI = """{"created": 1700000000, "user": "a", "usage": {"prompt_tokens": 10, "completion_tokens": 20}}
{"timestamp": 1700000001.5, "response": {"usage": {"input_tokens": 11, "output_tokens": 21}}, "request": {"user": "b"}}
{"created": 1700000003, "error": {"message": "overloaded"}}
{"response": {"status_code": 200, "body": {"created": 1700000002, "usage": {"input_tokens": 5, "output_tokens": 6}}}}
{"response": {"status_code": 429, "body": {}}, "created": 1700000004}
"""


def test_azure_keeps_its_hundred_nanoseconds(import_text: Importer) -> None:
    trace = load_trace(import_text(AZURE, "azure").path)
    assert trace.arrival_at_ns.tolist() == [0, 52_000_000, 1_020_040_000]
    assert trace.prompt_tokens.tolist() == [4808, 3180, 110]
    assert trace.output_tokens.tolist() == [10, 8, 27]
    assert trace.metadata.start == "2023-11-16 18:17:03 UTC"
    assert not trace.has_tenants and not trace.has_sessions


def test_burstgpt_counts_failures_apart_and_joins_model_and_log_type(import_text: Importer) -> None:
    result = import_text(BURSTGPT, "burstgpt", strict=True)
    trace = load_trace(result.path)
    assert (result.metadata.rows, result.metadata.failed_requests, result.metadata.bad_rows) == (3, 1, 0)
    assert trace.tenant_names == ("ChatGPT / Conversation log", "ChatGPT / API log")
    assert trace.tenant.tolist() == [0, 1, 0]
    assert trace.session_id.tolist() == [0, -1, 0]


def test_mooncake_counts_milliseconds(import_text: Importer) -> None:
    trace = load_trace(import_text(MOONCAKE, "mooncake").path)
    assert trace.arrival_s.tolist() == [0.0, 3.0]
    assert trace.session_id.tolist() == [0, 1]


def test_openai_logs_are_read_wherever_usage_lies(import_text: Importer) -> None:
    result = import_text(OPENAI, "openai-log", strict=True)
    trace = load_trace(result.path)
    assert result.metadata.failed_requests == 2
    assert trace.arrival_s.tolist() == [0.0, 1.5, 2.0]
    assert trace.prompt_tokens.tolist() == [10, 11, 5]
    assert [trace.tenant_names[i] for i in trace.tenant] == ["a", "b", "(none)"]


def test_csv_columns_units_and_delimiter_may_be_named(import_text: Importer) -> None:
    text = "ts;in;out;team;urgency\n1000;5;6;x;0\n2500;7;8;y;2\n"
    named = {"arrival": "ts", "prompt_tokens": "in", "output_tokens": "out", "tenant": "team", "priority": "urgency"}
    trace = load_trace(import_text(text, "csv", columns=named, time_unit="ms", delimiter=";").path)
    assert trace.arrival_s.tolist() == [0.0, 1.5]
    assert trace.priority.tolist() == [0, 2]
    assert trace.tenant_names == ("x", "y")


def test_jsonl_paths_may_be_dotted(import_text: Importer) -> None:
    lines = [{"at": 1.5, "meta": {"in": 3, "out": 4}}, {"at": 2, "meta": {"in": "5", "out": 6.0}}]
    text = "\n".join(map(json.dumps, lines))
    named = {"arrival": "at", "prompt_tokens": "meta.in", "output_tokens": "meta.out"}
    trace = load_trace(import_text(text, "jsonl", columns=named, strict=True).path)
    assert trace.prompt_tokens.tolist() == [3, 5]
    assert trace.output_tokens.tolist() == [4, 6]


@pytest.mark.parametrize(
    ("stamps", "expected_s"),
    [
        (["0", "0.25", "1e1"], [0.0, 0.25, 10.0]),
        (["1700000000", "1700000000.5", "1700000001"], [0.0, 0.5, 1.0]),
        (["2024-05-10 00:00:00.5+00:00", "2024-05-10T02:00:01+02:00", "2024-05-10T00:00:02Z"], [0.0, 0.5, 1.5]),
        (["2024-05-10", "2024-05-10 00:01", "2024-05-10T00:02:00"], [0.0, 60.0, 120.0]),
        (["2024-05-10 00:00:00", "2024-05-10T00:00:01Z", " 2024-05-10 00:00:02 "], [0.0, 1.0, 2.0]),
    ],
)
def test_times_are_numbers_of_seconds_or_iso(import_text: Importer, stamps: list[str], expected_s: list[float]) -> None:
    text = "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{stamp},1,1\n" for stamp in stamps)
    assert load_trace(import_text(text, "csv", strict=True).path).arrival_s.tolist() == expected_s


def test_gzip_byte_order_mark_and_blank_lines_are_no_obstacle(import_text: Importer) -> None:
    text = b"\xef\xbb\xbf" + AZURE.replace("\n", "\r\n\r\n").encode()
    result = import_text(text, "azure", compress=True, strict=True)
    assert result.metadata.rows == 3


def test_whole_numbers_written_as_floats_are_counts(import_text: Importer) -> None:
    text = "arrival_s,prompt_tokens,output_tokens\n0,12.0,3\n1,13, 4\n"
    trace = load_trace(import_text(text, "csv", strict=True).path)
    assert trace.prompt_tokens.tolist() == [12, 13]


def test_rows_out_of_order_are_sorted_when_loaded(import_text: Importer) -> None:
    text = "arrival_s,prompt_tokens,output_tokens,tenant\n9,1,1,a\n4,2,2,b\n9,3,3,b\n5,4,4,c\n"
    result = import_text(text, "csv")
    trace = load_trace(result.path)
    assert not result.metadata.is_sorted
    assert trace.arrival_s.tolist() == [0.0, 1.0, 5.0, 5.0]
    assert trace.prompt_tokens.tolist() == [2, 4, 1, 3]
    assert [trace.tenant_names[i] for i in trace.tenant] == ["b", "c", "a", "b"]


def test_bad_rows_are_left_out_counted_and_shown_with_their_lines(import_text: Importer) -> None:
    bad = {3: "x,1,1", 5: "2,0,1", 6: "3,1", 9: "4,1,-2"}
    lines = ["arrival_s,prompt_tokens,output_tokens", *(bad.get(line, f"{line},1,1") for line in range(2, 12))]
    result = import_text("\n".join(lines), "csv", num_bad_shown=3)
    assert (result.metadata.rows, result.metadata.bad_rows) == (6, 4)
    assert [line for line, _ in result.bad_rows.first] == [3, 5, 6]
    assert result.bad_rows.describe().endswith("... and 1 more lines left out")


def test_strict_refuses_at_the_first_bad_row_and_leaves_nothing_behind(import_text: Importer, tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match=r"log:3: prompt_tokens: 'many'; allowed: a whole number from 1"):
        import_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n1,many,1\n", "csv", strict=True)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_the_trace_says_where_it_comes_from(import_text: Importer, tmp_path: Path) -> None:
    result = import_text(AZURE, "azure", compress=True)
    assert result.metadata.sha256 == hashlib.sha256((tmp_path / "log.gz").read_bytes()).hexdigest()
    assert load_trace(result.path).metadata == result.metadata
    assert "CC-BY-4.0" in result.metadata.licence
    assert import_text(AZURE, "azure", licence="ours").metadata.licence == "ours"


def test_columns_are_small(import_text: Importer) -> None:
    text = "arrival_s,prompt_tokens,output_tokens,tenant,priority\n0,1,2,a,1\n"
    schema = pq.read_schema(import_text(text, "csv").path)
    types = {name: str(schema.field(name).type) for name in schema.names}
    assert types["arrival_at_ns"] == "int64"
    assert (types["prompt_tokens"], types["output_tokens"], types["priority"]) == ("int32", "int32", "int8")
    assert types["tenant"].startswith("dictionary")


def test_chunks_do_not_show_in_the_result(
    import_text: Importer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    lines = [f"{i * 0.5},{rng.integers(1, 99)},{'x' if i % 7 == 3 else 5},t{i % 5}" for i in range(100)]
    text = "\n".join(["arrival_s,prompt_tokens,output_tokens,tenant", *lines])
    whole = import_text(text, "csv", num_bad_shown=100)
    expected = load_trace(whole.path)
    monkeypatch.setattr(rows, "CHUNK_ROWS", 8)
    monkeypatch.setattr("llmserve_env.workloads.traces.importing._ROW_GROUP_ROWS", 16)
    pieces = import_text(text, "csv", num_bad_shown=100)
    found = load_trace(pieces.path)
    assert pq.ParquetFile(pieces.path).num_row_groups > 1
    assert pieces.metadata == whole.metadata
    assert pieces.bad_rows.first == whole.bad_rows.first
    assert found.tenant_names == expected.tenant_names
    for column in ("arrival_at_ns", "prompt_tokens", "output_tokens", "tenant"):
        assert np.array_equal(getattr(found, column), getattr(expected, column))


def test_progress_reports_every_byte(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(AZURE)
    seen: list[int] = []
    import_trace(log, resolve_format("azure"), tmp_path / "out.parquet", progress=seen.append)
    assert sum(seen) == log.stat().st_size


def test_every_format_names_a_column_for_what_is_required() -> None:
    for log_format in FORMATS.values():
        assert log_format.mandatory <= set(log_format.columns)
