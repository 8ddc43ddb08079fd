"""Files from strangers: task files, logs, traces and weights that are refused with a reason, in bounded memory."""

from __future__ import annotations

import gzip
import json
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from llmserve_env.agents.policy import load_policy, policy_folder
from llmserve_env.errors import ConfigError, LLMServeError, TraceFormatError
from llmserve_env.fleet.series import load_series
from llmserve_env.json_files import MAX_BYTES
from llmserve_env.leaderboard.submission import read_submission
from llmserve_env.profiles.engine_results import read_bench
from llmserve_env.profiles.host import load_host
from llmserve_env.profiles.measurements import load_measurements
from llmserve_env.profiles.model_spec import find_model
from llmserve_env.profiles.store import load_profile
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.files import data_folder, read_mapping
from llmserve_env.workloads.traces import FORMATS, import_trace, load_trace, rows, trace

MEMORY_BYTES = 3_000_000_000
STATIC = (data_folder() / "static_workload-v1.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: " + "[" * 100_000 + "]" * 100_000, "levels deep"),
        ("".join(f"{' ' * depth}a:\n" for depth in range(5_000)), "levels deep"),
        ("a: 1\nb: 2\na: 3\n", "'a' is given twice"),
        ("a: {b: 1, b: 2}", "'b' is given twice"),
        ("a: &x [1, 1]\nb: &y [*x, *x]\nc: [*y, *y]\n", "alias"),
        ("a: " + "9" * 5_000, "digits"),
        ("a: !!python/object/apply:os.system [echo]", "could not determine a constructor"),
    ],
    ids=["deep brackets", "deep indentation", "twice", "twice inside", "nested aliases", "digits", "an object"],
)
def test_yaml_that_is_hostile_or_ambiguous_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "task.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=reason):
        read_mapping(path)


@pytest.mark.parametrize("task_id", ["../../evil", "/tmp/evil", "..", ".hidden", "a\\b", "a\nb", "c:d"])
def test_a_task_cannot_be_named_like_a_path(tmp_path: Path, task_id: str) -> None:
    path = tmp_path / "task.yaml"
    path.write_text(STATIC.replace("id: static_workload", f"id: {json.dumps(task_id)}"), encoding="utf-8")
    with pytest.raises(ConfigError, match="plain name"):
        load_task(path)


@pytest.mark.parametrize(("field", "value"), [("replicas", 10**9), ("prefill_replicas", 10**9), ("steps", 10**12)])
def test_a_fleet_or_episode_beyond_any_memory_is_refused(tmp_path: Path, field: str, value: int) -> None:
    data = read_mapping(data_folder() / "static_workload-v1.yaml")
    (data if field == "steps" else data["deployment"])[field] = value
    path = tmp_path / "own.yaml"
    path.write_text(json.dumps({**data, "id": "own"}), encoding="utf-8")
    with pytest.raises(ConfigError, match=field):
        load_task(path)


def in_bounded_memory(program: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process that may not take more memory than it should need."""
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES)),
    )


IMPORT = (
    "import sys; from pathlib import Path; from llmserve_env.cli.main import main; "
    "sys.exit(main(['trace', 'import', sys.argv[1], '--format', sys.argv[3], '-o', sys.argv[2]]))"
)


@pytest.mark.slow
@pytest.mark.parametrize("container", ["csv", "jsonl"])
def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path, container: str) -> None:
    log = tmp_path / f"log.{container}.gz"
    with gzip.open(log, "wb", compresslevel=1) as file:
        file.write(b"arrival_s,prompt_tokens,output_tokens\n" if container == "csv" else b"")
        for _ in range(600):
            file.write(b"x" * 1_000_000)
    done = in_bounded_memory(IMPORT, log, tmp_path / "trace.parquet", Path(container))
    assert (done.returncode, "characters" in done.stderr) == (2, True), done.stderr[-2_000:]


@pytest.mark.parametrize("container", ["csv", "jsonl"])
def test_no_more_of_a_line_is_read_than_a_line_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, container: str
) -> None:
    log = tmp_path / f"log.{container}.gz"
    with gzip.open(log, "wb", compresslevel=1) as file:
        file.write(b"arrival_s,prompt_tokens,output_tokens\n" if container == "csv" else b"")
        file.write(b"x" * 20_000_000)
    monkeypatch.setattr(rows, "MAX_LINE_CHARS", 10_000)
    tracemalloc.start()
    with pytest.raises(TraceFormatError, match="more than 10,000 characters in one line"):
        import_trace(log, FORMATS[container], tmp_path / "trace.parquet")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 5_000_000


def test_a_small_parquet_of_gigabytes_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, path = tmp_path / "log.csv", tmp_path / "trace.parquet"
    log.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,10\n1,10,10\n", encoding="utf-8")
    import_trace(log, FORMATS["csv"], path)
    with pq.ParquetFile(path) as file:
        schema, notes = file.schema_arrow, file.metadata.metadata
    rows = 1 << 20
    columns = [pa.array(np.zeros(rows, field.type.to_pandas_dtype()), field.type) for field in schema]
    with pq.ParquetWriter(tmp_path / "bomb.parquet", schema) as writer:
        writer.add_key_value_metadata({name: notes[name] for name in notes if name != b"ARROW:schema"})
        writer.write_table(pa.Table.from_arrays(columns, schema=schema))
    monkeypatch.setattr(trace, "MAX_TRACE_BYTES", 4_000_000)
    assert (tmp_path / "bomb.parquet").stat().st_size < trace.MAX_TRACE_BYTES // 10
    with pytest.raises(TraceFormatError, match="GB when unpacked"):
        load_trace(tmp_path / "bomb.parquet")


def test_a_number_of_five_thousand_digits_is_a_bad_row(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    digits = "9" * 5_000
    rows = ("arrival_s,prompt_tokens,output_tokens", f"0,{digits},1", "1,5,5", f"{digits},5,5")
    log.write_text("\n".join(rows), encoding="utf-8")
    result = import_trace(log, FORMATS["csv"], tmp_path / "trace.parquet")
    assert (result.metadata.rows, result.metadata.bad_rows) == (1, 2)
    assert len(load_trace(tmp_path / "trace.parquet")) == 1


def layers(**changes: Any) -> dict[str, Any]:
    found = load_policy(policy_folder("static_workload"))
    tensors: dict[str, Any] = {}
    for i, (weight, bias) in enumerate(zip(found.weights, found.biases, strict=True)):
        tensors |= {f"layers.{i}.weight": weight.astype(np.float32), f"layers.{i}.bias": bias.astype(np.float32)}
    return {**tensors, **changes}


def not_finite(value: float) -> np.ndarray:
    bias: np.ndarray = layers()["layers.0.bias"].copy()
    bias[0] = value
    return bias


CARD = json.loads((policy_folder("static_workload") / "ppo.json").read_text(encoding="utf-8"))
CARDS: dict[str, Any] = {
    "no json": "{",
    "a list": "[]",
    "nothing": "{}",
    "deep": "[" * 100_000,
    "no tasks": json.dumps({**CARD, "tasks": None}),
    "features of no list": json.dumps({**CARD, "features": 7}),
    "levels of text": json.dumps({**CARD, "levels": [["a"]]}),
    "levels of nothing": json.dumps({**CARD, "levels": [[]]}),
    "fewer levels": json.dumps({**CARD, "levels": CARD["levels"][:-1]}),
    "infinite levels": json.dumps({**CARD, "levels": [[float("inf")]]}),
}
TENSORS: dict[str, Any] = {
    "NaN": {"layers.0.bias": not_finite(float("nan"))},
    "infinity": {"layers.0.bias": not_finite(float("inf"))},
    "another name": {"layers.9.weight": np.zeros((2, 2), np.float32)},
    "integers": {"layers.0.bias": np.zeros(len(layers()["layers.0.bias"]), np.int32)},
    "a vector": {"layers.0.weight": np.zeros(4, np.float32)},
    "another width": {"layers.0.weight": np.zeros((3, 3), np.float32)},
    "a short bias": {"layers.0.bias": np.zeros(1, np.float32)},
}


@pytest.mark.parametrize("name", [*CARDS, *TENSORS, "no tensors", "garbage", "a huge header"])
def test_a_hostile_policy_is_refused_with_its_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "ppo.json").write_text(CARDS.get(name, json.dumps(CARD)), encoding="utf-8")
    save_file({} if name == "no tensors" else layers(**TENSORS.get(name, {})), tmp_path / "ppo.safetensors")
    if name == "garbage":
        (tmp_path / "ppo.safetensors").write_bytes(b"garbage")
    if name == "a huge header":
        (tmp_path / "ppo.safetensors").write_bytes((1 << 60).to_bytes(8, "little") + b"{}")
    with pytest.raises(ConfigError, match="ppo"):
        load_policy(tmp_path)


def test_a_log_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="no such file"):
        import_trace(tmp_path / "none.csv", FORMATS["csv"], tmp_path / "trace.parquet")


HOSTILE_JSON = {
    "deep": b"[" * 100_000,
    "digits": b'{"a": ' + b"9" * 5_000 + b"}",
    "another encoding": b"\xff\xfe",
    "cut off": b'{"a": ',
    "a list": b"[]",
    "nothing": b"",
}
READERS: dict[str, Callable[[Path], object]] = {
    "series": load_series,
    "model": find_model,
    "profile": load_profile,
    "host": load_host,
    "measurements": load_measurements,
    "bench": partial(read_bench, tier="fp16"),
    "submission": read_submission,
}


@pytest.mark.parametrize("content", HOSTILE_JSON)
@pytest.mark.parametrize("reader", READERS)
def test_json_from_strangers_is_refused_with_its_file(tmp_path: Path, reader: str, content: str) -> None:
    path = tmp_path / "given.json"
    path.write_bytes(HOSTILE_JSON[content])
    with pytest.raises(LLMServeError, match="given"):
        READERS[reader](path)


def test_a_json_file_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "given.json"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(TraceFormatError, match="more than 200 MB"):
        load_series(path)


@pytest.mark.parametrize("rate", [10**400, -1, float("inf"), 1e308])
def test_a_rate_that_no_service_has_is_refused(tmp_path: Path, rate: float) -> None:
    path = tmp_path / "given.json"
    path.write_text(json.dumps({"window_s": 3_600, "rate_rps": [1.0] * 99 + [rate]}), encoding="utf-8")
    with pytest.raises(TraceFormatError, match=r"rate_rps\[99\] must be from 0 to"):
        load_series(path)
