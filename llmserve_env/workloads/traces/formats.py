"""Supported log formats: the column or JSON path of each field, and the unit of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from llmserve_env.errors import TraceFormatError

TimeUnit = Literal["auto", "iso", "s", "ms", "us", "ns"]
TIME_UNITS: tuple[TimeUnit, ...] = ("auto", "iso", "s", "ms", "us", "ns")
"""`auto` reads numbers as seconds and other text as ISO 8601."""

REQUIRED = ("arrival", "prompt_tokens", "output_tokens")
OPTIONAL = ("tenant", "priority", "session", "prefix", "prefix_tokens", "block_ids")
MOONCAKE_BLOCK_TOKENS = 512
"""Each hash id of a Mooncake trace stands for this many tokens of prompt (Qin et al., FAST 2025)."""


@dataclass(frozen=True, slots=True)
class LogFormat:
    """How one kind of log is read."""

    name: str
    container: Literal["csv", "jsonl"]
    columns: Mapping[str, tuple[str, ...]]
    """Field to source. In a CSV file several columns are joined into one label; in JSON several dotted paths are
    tried in order."""
    time_unit: TimeUnit = "auto"
    delimiter: str = ","
    zero_output_is_failure: bool = False
    """Whether a row with 0 output tokens is a failed request, counted separately, instead of a malformed row."""
    has_failed: Callable[[Mapping[str, Any]], bool] | None = None
    """Returns whether a JSON record describes a failed request."""
    mandatory: frozenset[str] = frozenset(REQUIRED)
    """Fields whose column must exist."""
    licence: str = "not stated"

    def name_of(self, field: str) -> str:
        """The source of a field, as messages show it."""
        return " or ".join(self.columns[field])


def _openai_failed(record: Mapping[str, Any]) -> bool:
    """Whether a logged call ended in an error and therefore has no usage."""
    response = record.get("response")
    inner: Mapping[str, Any] = response if isinstance(response, Mapping) else {}
    status = record.get("status_code", inner.get("status_code"))
    return bool(record.get("error") or inner.get("error")) or (isinstance(status, int) and status >= 400)


def _openai_paths(*names: str) -> tuple[str, ...]:
    """A name at the top of a logged call, in its response, or in the body of a batch response."""
    return tuple(f"{where}{name}" for where in ("", "response.", "response.body.") for name in names)


_CSV_COLUMNS = {
    "arrival": ("arrival_s",), "prompt_tokens": ("prompt_tokens",), "output_tokens": ("output_tokens",),
    "tenant": ("tenant",), "priority": ("priority",), "session": ("session",), "prefix": ("prefix",),
    "prefix_tokens": ("prefix_tokens",),
}  # fmt: skip

FORMATS: dict[str, LogFormat] = {
    log_format.name: log_format
    for log_format in (
        LogFormat(
            "azure",
            "csv",
            {"arrival": ("TIMESTAMP",), "prompt_tokens": ("ContextTokens",), "output_tokens": ("GeneratedTokens",)},
            time_unit="iso",
            licence="CC-BY-4.0, Azure Public Dataset; cite Patel et al., Splitwise, ISCA 2024",
        ),
        LogFormat(
            "burstgpt",
            "csv",
            {
                "arrival": ("Timestamp",),
                "prompt_tokens": ("Request tokens",),
                "output_tokens": ("Response tokens",),
                "tenant": ("Model", "Log Type"),
                "session": ("Session ID",),
            },
            time_unit="s",
            zero_output_is_failure=True,
            licence="CC-BY-4.0, HPMLL/BurstGPT; cite Wang et al., BurstGPT, KDD 2025",
        ),
        LogFormat(
            "mooncake",
            "jsonl",
            {
                "arrival": ("timestamp",),
                "prompt_tokens": ("input_length",),
                "output_tokens": ("output_length",),
                "block_ids": ("hash_ids",),
            },
            time_unit="ms",
            mandatory=frozenset((*REQUIRED, "block_ids")),
            licence="Apache-2.0, kvcache-ai/Mooncake; cite Qin et al., Mooncake, FAST 2025",
        ),
        LogFormat("csv", "csv", _CSV_COLUMNS),
        LogFormat("jsonl", "jsonl", _CSV_COLUMNS),
        LogFormat(
            "openai-log",
            "jsonl",
            {
                "arrival": _openai_paths("timestamp", "created_at", "created"),
                "prompt_tokens": _openai_paths("usage.prompt_tokens", "usage.input_tokens"),
                "output_tokens": _openai_paths("usage.completion_tokens", "usage.output_tokens"),
                "tenant": ("user", "request.user"),
                "session": ("session_id", "conversation_id"),
            },
            has_failed=_openai_failed,
        ),
    )
}


def resolve_format(
    name: str,
    columns: Mapping[str, str] | None = None,
    time_unit: str | None = None,
    delimiter: str | None = None,
) -> LogFormat:
    """The format of that name, with columns, time unit and delimiter replaced where given.

    A column named by the user must exist; the optional columns of the plain formats are read where they exist.
    """
    if name not in FORMATS:
        raise TraceFormatError(f"unknown log format {name!r}; allowed: {', '.join(FORMATS)}")
    log_format = FORMATS[name]
    given = dict(columns or {})
    unknown = sorted(set(given) - {*REQUIRED, *OPTIONAL})
    if unknown:
        raise TraceFormatError(f"unknown fields {unknown} in the column mapping; allowed: {[*REQUIRED, *OPTIONAL]}")
    if time_unit is not None and time_unit not in TIME_UNITS:
        raise TraceFormatError(f"unknown time unit {time_unit!r}; allowed: {', '.join(TIME_UNITS)}")
    if delimiter is not None and len(delimiter) != 1:
        raise TraceFormatError(f"the delimiter is one character, as in ',' or ';'; got {delimiter!r}")
    return replace(
        log_format,
        columns={**log_format.columns, **{field: (column,) for field, column in given.items()}},
        mandatory=log_format.mandatory | frozenset(given),
        time_unit=log_format.time_unit if time_unit is None else time_unit,
        delimiter=log_format.delimiter if delimiter is None else delimiter,
    )


def formats_with_columns(header: list[str]) -> list[str]:
    """CSV formats that fit a header, as a hint when the wrong format was named."""
    return [
        log_format.name
        for log_format in FORMATS.values()
        if log_format.container == "csv"
        and all(set(log_format.columns[field]) <= set(header) for field in log_format.mandatory)
    ]
