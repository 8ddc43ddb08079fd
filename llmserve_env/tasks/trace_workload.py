"""A workload that names a trace: the generator fitted to the trace takes the section's place.

```yaml
workload:
  trace: {file: requests.parquet, scale: 1.5}
  classes:
    - {name: interactive, ttft_slo_ms: 500, patience_s: 5}
  acceptance: {base: 0.6}
```
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from llmserve_env.errors import ConfigError, TraceFormatError
from llmserve_env.tasks.task import Task
from llmserve_env.workloads.parts import Count, Part, Positive
from llmserve_env.workloads.problems import LineOf, config_error
from llmserve_env.workloads.spec import MAX_CLASSES, Acceptance, ServiceClass
from llmserve_env.workloads.traces.fitting import FitOptions, FittedWorkload, fit_trace
from llmserve_env.workloads.traces.formats import FORMATS, resolve_format
from llmserve_env.workloads.traces.importing import import_trace
from llmserve_env.workloads.traces.statistics import span_s
from llmserve_env.workloads.traces.trace import Trace, load_trace

DEFAULT_STEPS, DEFAULT_WINDOW_S = 200, 1.0
_ROWS = ("arrival_at_ns", "prompt_tokens", "output_tokens", "tenant", "priority", "session_id", "prefix_id")


class TraceSource(Part):
    """Which recording, how it is read, and how it is scaled to the deployment."""

    file: str = Field(min_length=1)
    """Parquet from `llmserve trace import`, or a log itself; relative to the task's folder."""
    format: str | None = None
    """Of a log that is not imported: csv, jsonl, azure, burstgpt, mooncake, openai-log."""
    columns: dict[str, str] = Field(default_factory=dict)
    time_unit: str | None = None
    delimiter: str | None = None
    scale: Positive = 1.0
    """Multiplies every rate: the one number that fits the traffic to the fleet."""
    arrivals: Literal["auto", "rate_series", "on_off"] = "auto"
    tenants: Count = 8
    repeat: bool = False
    """Start over when the trace ends, for episodes longer than it."""


class TraceWorkload(Part):
    """The workload section of a task that names a trace; no trace records promises, patience or acceptance."""

    trace: TraceSource
    classes: tuple[ServiceClass, ...] = Field(min_length=1, max_length=MAX_CLASSES)
    """In order of urgency: the first is that of priority 0 in the trace."""
    acceptance: Acceptance = Acceptance(base=0.0)
    horizon_s: Count | None = None
    max_total_tokens: int = Field(default=16_384, strict=True, ge=2)
    """Longest prompt and output together; longer requests of the trace are left out, and counted."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A trace as a task uses it, and the generator fitted to it."""

    section: TraceWorkload
    trace: Trace
    fitted: FittedWorkload
    notes: tuple[str, ...]


def read_section(data: Mapping[str, Any], task_file: Path, line_of: LineOf) -> TraceWorkload:
    """The checked workload section."""
    try:
        return TraceWorkload.model_validate(data["workload"])
    except ValidationError as error:
        raise config_error(error, data["workload"], str(task_file), line_of, ("workload",)) from error


def expand_trace(data: Mapping[str, Any], task_file: Path, line_of: LineOf) -> tuple[Mapping[str, Any], TraceWorkload]:
    """The same fields with the workload that was fitted to the trace they name, and the section that named it."""
    section = read_section(data, task_file, line_of)
    where = f"{task_file}:{line_of(('workload', 'trace'))}: workload.trace"
    try:
        recording = _recording(section, task_file)
    except (TraceFormatError, ConfigError) as error:
        raise type(error)(f"{where}: {error}") from error
    horizon_s = section.horizon_s or int(np.ceil(_number(data, "steps", DEFAULT_STEPS) * _number(data, "window_s")))
    return {**data, "workload": _workload(section, recording, horizon_s, where)}, section


def recording_of(task: Task) -> Recording | None:
    """The recording behind a task, read and fitted once per process; None for a task without one."""
    source = task.source
    return None if source is None or source.trace is None else _recording(source.trace, source.file)


def _recording(section: TraceWorkload, task_file: Path) -> Recording:
    path = task_file.parent / section.trace.file
    if not path.is_file():
        raise TraceFormatError(f"file: no such file {path}; paths are relative to the task's folder")
    return _read_and_fit(section.model_dump_json(by_alias=True), path.resolve(), path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _read_and_fit(section_json: str, path: Path, _changed_at_ns: int) -> Recording:
    section = TraceWorkload.model_validate_json(section_json)
    trace, notes = _usable(_loaded(path, section.trace), section)
    fitted = fit_trace(trace, FitOptions(section.trace.arrivals, section.trace.tenants, random_start=True))
    return Recording(section, trace, fitted, (*notes, *fitted.notes))


def _loaded(path: Path, source: TraceSource) -> Trace:
    """An imported trace, or a log read as it is; a long log is better imported once."""
    if path.suffix == ".parquet":
        return load_trace(path)
    if source.format is None:
        raise TraceFormatError(
            f"format: {path.name} is not an imported trace (.parquet), so name its format: {', '.join(FORMATS)}"
        )
    how = resolve_format(source.format, source.columns, source.time_unit, source.delimiter)
    with tempfile.TemporaryDirectory() as folder:
        imported = Path(folder) / "trace.parquet"
        import_trace(path, how, imported)
        return load_trace(imported)


def _usable(trace: Trace, section: TraceWorkload) -> tuple[Trace, list[str]]:
    """The requests that fit the context window, and a note on those that do not."""
    fits = trace.prompt_tokens.astype(np.int64) + trace.output_tokens <= section.max_total_tokens
    left_out = int(np.count_nonzero(~fits))
    if left_out == len(trace):
        raise ConfigError(f"no request fits max_total_tokens {section.max_total_tokens}; raise it")
    notes = []
    if left_out:
        notes.append(
            f"{left_out} of {len(trace)} requests ({left_out / len(trace):.1%}) are longer than "
            f"max_total_tokens {section.max_total_tokens} and are left out"
        )
        columns = {field.name: getattr(trace, field.name) for field in fields(Trace)}
        trace = replace(trace, **{name: columns[name][fits] for name in (*_ROWS, "prefix_tokens")})
    needed = int(trace.priority.max()) + 1
    if needed > len(section.classes):
        raise ConfigError(
            f"the trace has priorities 0 to {needed - 1}, but workload.classes lists {len(section.classes)}: "
            "give one class per priority, the most urgent first"
        )
    return trace, notes


def _workload(section: TraceWorkload, recording: Recording, horizon_s: int, where: str) -> dict[str, Any]:
    """The fitted generator with the promises of the task."""
    names = [service.name for service in section.classes]
    sources = []
    for source in recording.fitted.data["sources"]:
        arrivals = dict(source["arrivals"])
        if arrivals["kind"] == "rate_series":
            if span_s(recording.trace) < horizon_s and not section.trace.repeat:
                raise ConfigError(
                    f"{where}: the trace lasts {span_s(recording.trace):.0f} s and an episode {horizon_s} s: "
                    "take fewer steps, shorter windows, or repeat: true"
                )
            arrivals["cyclic"] = section.trace.repeat
        kinds = [
            {
                **kind,
                "class": names[int(kind["class"].removeprefix("priority_"))],
                "acceptance": section.acceptance.model_dump(),
            }
            for kind in source["kinds"]
        ]
        sources.append({**source, "arrivals": arrivals, "kinds": kinds})
    return {
        "horizon_s": horizon_s,
        "max_total_tokens": section.max_total_tokens,
        "rate_scale": section.trace.scale,
        "classes": [service.model_dump() for service in section.classes],
        "sources": sources,
    }


def _number(data: Mapping[str, Any], name: str, default: float = DEFAULT_WINDOW_S) -> float:
    """A numeric field, or its default where it is not a number: the task's validation reports that later."""
    value = data.get(name, default)
    return float(value) if isinstance(value, int | float) and value > 0 else default
