"""Every malformed log is refused with the file, the line or field, and what is allowed."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llmserve_env.errors import LLMServeError, TraceFormatError
from llmserve_env.workloads.traces.formats import resolve_format
from llmserve_env.workloads.traces.importing import import_trace
from llmserve_env.workloads.traces.trace import load_trace

HEAD = "arrival_s,prompt_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURSTGPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
GOOD_JSON = '{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1}\n'
PREFIXED = "arrival_s,prompt_tokens,output_tokens,prefix,prefix_tokens\n"

BAD_ROWS: dict[str, tuple[str, str | bytes, str]] = {
    "time that is no time": ("azure", AZURE + "soon,1,1\n", "log:2: TIMESTAMP: 'soon'; allowed: an ISO 8601 time"),
    "number for an ISO time": ("azure", AZURE + "12.5,1,1\n", "log:2: TIMESTAMP: '12.5'; allowed: an ISO 8601 time"),
    "time before 1970": (
        "azure",
        AZURE + "1969-12-31 23:00:00,1,1\n",
        "log:2: TIMESTAMP: '1969-12-31 23:00:00'; allowed",
    ),
    "missing time": ("csv", HEAD + "0,1,1\n,1,1\n", "log:3: arrival_s: is missing; allowed: a number of seconds"),
    "negative time": ("csv", HEAD + "-1,1,1\n", "log:2: arrival_s: '-1'; allowed: a number of seconds, 0 or more"),
    "endless time": ("csv", HEAD + "inf,1,1\n", "log:2: arrival_s: 'inf'; allowed: a number of seconds"),
    "time beyond 64 bits": ("csv", HEAD + "1e300,1,1\n", "log:2: arrival_s: '1e300'; allowed"),
    "empty prompt": ("csv", HEAD + "0,0,1\n", "log:2: prompt_tokens: '0'; allowed: a whole number from 1 to 2147483"),
    "no output": ("azure", AZURE + "2023-01-01,5,0\n", "log:2: GeneratedTokens: '0'; allowed: a whole number from 1"),
    "negative output": ("csv", HEAD + "0,1,-3\n", "log:2: output_tokens: '-3'; allowed: a whole number from 1"),
    "half a token": ("csv", HEAD + "0,1.5,1\n", "log:2: prompt_tokens: '1.5'; allowed: a whole number"),
    "hexadecimal": ("csv", HEAD + "0,0x10,1\n", "log:2: prompt_tokens: '0x10'; allowed: a whole number"),
    "more than 32 bits": ("csv", HEAD + "0,3000000000,1\n", "log:2: prompt_tokens: '3000000000'; allowed"),
    "missing count": ("csv", HEAD + "0,,1\n", "log:2: prompt_tokens: is missing; allowed: a whole number"),
    "not a number": ("csv", HEAD + "0,nan,1\n", "log:2: prompt_tokens: 'nan'; allowed: a whole number"),
    "too few fields": ("csv", HEAD + "0,1\n", "log:2: has 2 fields; allowed: 3, as in the header"),
    "too many fields": ("csv", HEAD + "0,1,1,9\n", "log:2: has 4 fields; allowed: 3, as in the header"),
    "open quote": ("csv", HEAD + '0,1,"1\n1,1,1\n2,1,1\n', "log:2: output_tokens: '1"),
    "priority out of range": (
        "csv",
        HEAD.replace("\n", ",priority\n") + "0,1,1,8\n",
        "log:2: priority: '8'; allowed: a whole number from 0 to 7",
    ),
    "prefix longer than prompt": (
        "csv",
        PREFIXED + "0,10,1,system,11\n",
        "log:2: prefix_tokens: 11 in a prompt of 10; allowed: at most the prompt",
    ),
    "tenant in another encoding": (
        "csv",
        HEAD.encode().replace(b"\n", b",tenant\n") + b"0,1,1,Z\xfcri\n",
        "log:2: tenant: 'Z\\udcfcri'; allowed: text in UTF-8",
    ),
    "answer without prompt": ("burstgpt", BURSTGPT + "5,GPT-4,0,7,7,API log\n", "log:2: Request tokens: 0; allowed"),
    "broken JSON": ("jsonl", GOOD_JSON + '{"arrival_s": 1,\n', "log:2: is not JSON"),
    "JSON that is no object": ("jsonl", GOOD_JSON + "[1, 2]\n", "log:2: is a JSON list; allowed: an object"),
    "count of the wrong type": (
        "jsonl",
        '{"arrival_s": 0, "prompt_tokens": true, "output_tokens": 1}\n',
        "log:1: prompt_tokens: True; allowed",
    ),
    "field that is not there": ("jsonl", '{"arrival_s": 0, "output_tokens": 1}\n', "log:1: prompt_tokens: is missing"),
    "tenant that is no name": (
        "jsonl",
        GOOD_JSON.replace("}", ', "tenant": [1]}'),
        "log:1: tenant: [1]; allowed: text or a whole number",
    ),
    "log line without usage": (
        "openai-log",
        '{"created": 5}\n',
        "usage.input_tokens: is missing; allowed: a whole number",
    ),
    "hashes that are no list": (
        "mooncake",
        '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": ["a"]}\n',
        "log:1: hash_ids: ['a']; allowed: a list of whole numbers",
    ),
}

REFUSED: dict[str, tuple[str, str | bytes, str]] = {
    "empty file": ("csv", "", "log: is empty; a log needs at least one request"),
    "header only": ("csv", HEAD, "log: no usable request in 0 rows"),
    "no header": (
        "csv",
        "0,1,1\n",
        "log:1: no column 'arrival_s' for arrival in format csv; the header has ['0', '1', '1']",
    ),
    "header of another format": ("csv", AZURE + "2023-01-01,1,1\n", "these columns fit --format azure"),
    "column twice": (
        "csv",
        "arrival_s,arrival_s,prompt_tokens,output_tokens\n",
        "log:1: column 'arrival_s' appears 2 times",
    ),
    "JSON array": ("jsonl", "[" + GOOD_JSON + "]", "log:1: is a JSON array; allowed: one JSON object per line"),
    "parquet": ("csv", b"PAR1....", "log: is a parquet file"),
    "zip": ("csv", b"PK\x03\x04....", "log: is a zip archive; unpack it first; allowed: UTF-8 text, plain or gzip"),
    "UTF-16": ("csv", HEAD.encode("utf-16"), "log: is text in UTF-16; convert it to UTF-8 first"),
    "cut gzip": ("csv", gzip.compress((HEAD + "0,1,1\n" * 999).encode())[:-12], "log: the gzip stream is damaged"),
    "damaged gzip": ("csv", gzip.compress(HEAD.encode())[:12] + b"\xff" * 40, "log: the gzip stream is damaged"),
    "all rows bad": ("csv", HEAD + "x,1,1\n", "log: no usable request in 1 rows (0 of them failed requests)"),
    "all requests failed": ("burstgpt", BURSTGPT + "5,GPT-4,5,0,5,API log\n", "1 of them failed requests"),
}


def attempt(tmp_path: Path, name: str, content: str | bytes, strict: bool) -> str:
    log = tmp_path / "log"
    log.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TraceFormatError) as caught:
        import_trace(log, resolve_format(name), tmp_path / "trace.parquet", strict=strict)
    assert str(caught.value).startswith(str(log))
    assert not (tmp_path / "trace.parquet").exists()
    return str(caught.value)


@pytest.mark.parametrize("case", BAD_ROWS)
def test_a_bad_row_is_named(tmp_path: Path, case: str) -> None:
    name, content, expected = BAD_ROWS[case]
    message = attempt(tmp_path, name, content, strict=True)
    assert expected in message
    assert "allowed" in message


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_file_is_refused(tmp_path: Path, case: str) -> None:
    name, content, expected = REFUSED[case]
    assert expected in attempt(tmp_path, name, content, strict=False)


@pytest.mark.parametrize(
    "row", ["x,1,1", "-1,1,1", "1e300,1,1", "nan,1,1", "0,0,1", "0,1.5,1", "0,0x1,1", "0,1", "0,1,1,1"]
)
def test_a_bad_row_spoils_no_good_one(tmp_path: Path, row: str) -> None:
    log = tmp_path / "log"
    log.write_text(f"{HEAD}0,7,7\n{row}\n1,8,8\n")
    result = import_trace(log, resolve_format("csv"), tmp_path / "trace.parquet")
    trace = load_trace(result.path)
    assert result.metadata.bad_rows == 1
    assert (trace.prompt_tokens[0], trace.prompt_tokens[-1]) == (7, 8)


def test_lines_swallowed_by_an_open_quote_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f'{HEAD}0,7,7\n1,1,"1\n2,1,1\n3,1,1\n')
    result = import_trace(log, resolve_format("csv"), tmp_path / "trace.parquet")
    assert (result.metadata.rows, result.metadata.bad_rows) == (1, 3)
    assert result.bad_rows.first[0][0] == 3


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"name": "gcp"}, "unknown log format 'gcp'; allowed: azure, burstgpt"),
        (
            {"name": "csv", "columns": {"when": "t"}},
            "unknown fields ['when'] in the column mapping; allowed: ['arrival'",
        ),
        ({"name": "csv", "time_unit": "weeks"}, "unknown time unit 'weeks'; allowed: auto, iso, s"),
        ({"name": "csv", "delimiter": "||"}, "the delimiter is one character"),
    ],
)
def test_a_format_that_makes_no_sense_is_refused(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(TraceFormatError) as caught:
        resolve_format(**options)
    assert expected in str(caught.value)


def test_a_named_column_must_exist(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(HEAD + "0,1,1\n")
    with pytest.raises(TraceFormatError, match=r"log:1: no column 'team' for tenant in format csv"):
        import_trace(log, resolve_format("csv", {"tenant": "team"}), tmp_path / "trace.parquet")


@pytest.mark.parametrize("path", ["missing.csv", "."])
def test_a_log_that_is_no_file_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(TraceFormatError, match=r"no such file|is not a file"):
        import_trace(tmp_path / path, resolve_format("csv"), tmp_path / "trace.parquet")


def test_what_is_no_imported_trace_is_refused(tmp_path: Path) -> None:
    text, plain, old = tmp_path / "a.csv", tmp_path / "b.parquet", tmp_path / "c.parquet"
    text.write_text(HEAD)
    pq.write_table(pa.table({"x": [1]}), plain)
    schema = pa.table({"x": [1]}).replace_schema_metadata({"llmserve_trace": '{"version": 9}'})
    pq.write_table(schema, old)
    for path, expected in (
        (text, "is not an imported trace"),
        (plain, "without the field"),
        (old, "llmserve_trace.version"),
    ):
        with pytest.raises(LLMServeError, match="llmserve trace import") as caught:
            load_trace(path)
        assert str(caught.value).startswith(str(path)) and expected in str(caught.value)
    with pytest.raises(TraceFormatError, match="no such file"):
        load_trace(tmp_path / "d.parquet")
