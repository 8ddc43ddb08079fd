"""Convert raw values to typed columns: a clean column as a whole, any other column value by value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from llmserve_env.workloads.traces.formats import TimeUnit

_NS_PER_UNIT = {"auto": 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_MAX_NS = 2**63 - 1
_NAIVE, _ZONED = pa.timestamp("ns"), pa.timestamp("ns", tz="UTC")
_NOT_CLEAN = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, UnicodeEncodeError)


class _BadValue(ValueError):  # noqa: N818 - names the value, and never leaves this module
    """A value that cannot be used; the text says what is allowed."""


@dataclass(slots=True)
class Column:
    """A parsed field and the problems of its invalid rows, whose values are meaningless."""

    values: pa.Array
    bad: dict[int, str] = field(default_factory=dict)


def parse_whole(values: Sequence[Any], low: int, high: int, dtype: pa.DataType, missing: int | None = None) -> Column:
    """Whole numbers in a range, written as numbers or text; `missing` replaces an absent value where allowed."""
    try:
        whole = _integers(pa.array(values))
        found = whole.to_numpy()
        if found.min(initial=low) >= low and found.max(initial=low) <= high:
            return Column(whole.cast(dtype))
    except _NOT_CLEAN:
        pass  # the invalid value is found and reported below
    parsed, bad = _one_by_one(values, lambda value: _whole(value, low, high, missing), low)
    return Column(pa.array(parsed, dtype), bad)


def parse_arrivals(values: Sequence[Any], unit: TimeUnit) -> Column:
    """Nanoseconds since the zero of the log's clock; times without a zone are UTC.

    Whole numbers and ISO times are exact; a fraction of seconds since 1970 is exact to a quarter of a microsecond,
    as floats are.
    """
    try:
        column = _clean_arrivals(pa.array(values), unit)
        if column.null_count == 0 and column.to_numpy().min(initial=0) >= 0:
            return Column(column)
    except _NOT_CLEAN:
        pass  # the invalid value is found and reported below
    parsed, bad = _one_by_one(values, lambda value: _arrival(value, unit), 0)
    return Column(pa.array(parsed, pa.int64()), bad)


def parse_labels(values: Sequence[Any], is_mandatory: bool) -> Column:
    """Names of tenants, sessions and prefixes; null where there is none, unless the user named the column."""
    try:
        labels = pa.array(values, pa.string())
        if not (is_mandatory and labels.null_count):
            blank = pc.equal(pc.utf8_trim_whitespace(labels), "")
            return Column(pc.if_else(blank, pa.scalar(None, pa.string()), labels))
    except _NOT_CLEAN:
        pass  # the invalid value is found and reported below
    parsed, bad = _one_by_one(values, lambda value: _label(value, is_mandatory), None)
    return Column(pa.array(parsed, pa.string()), bad)


def parse_block_ids(values: Sequence[Any]) -> Column:
    """Lists of block hashes, one per block of prompt."""
    kind = pa.list_(pa.int64())
    try:
        column = pa.array(values, kind)
        if column.null_count == 0 and column.flatten().null_count == 0:
            return Column(column)
    except _NOT_CLEAN:
        pass  # the invalid value is found and reported below
    parsed, bad = _one_by_one(values, _block_ids, [])
    return Column(pa.array(parsed, kind), bad)


def _integers(numbers: pa.Array) -> pa.Array:
    """A column of integers, or of text that holds nothing else."""
    is_text = pa.types.is_string(numbers.type)
    if not (is_text or pa.types.is_integer(numbers.type)) or numbers.null_count:
        raise pa.ArrowInvalid("not integers")
    # Arrow reads hexadecimal too; a count in a log is decimal.
    if is_text and pc.any(pc.match_substring(numbers, "x", ignore_case=True)).as_py():
        raise pa.ArrowInvalid("not decimal")
    return numbers.cast(pa.int64())


def _clean_arrivals(values: pa.Array, unit: TimeUnit) -> pa.Array:
    if unit == "iso":
        return _clean_iso(values)
    try:
        whole = _integers(values).to_numpy()
    except pa.ArrowInvalid:
        return _clean_fractions(values, unit)
    scale = _NS_PER_UNIT[unit]
    if np.any(np.abs(whole) > _MAX_NS // scale):
        raise pa.ArrowInvalid("beyond 64 bits")
    return pa.array(whole * scale)


def _clean_fractions(values: pa.Array, unit: TimeUnit) -> pa.Array:
    if not (pa.types.is_floating(values.type) or pa.types.is_string(values.type)):
        raise pa.ArrowInvalid("not numbers")
    try:
        numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        if unit == "auto":
            return _clean_iso(values)
        raise
    scale = _NS_PER_UNIT[unit]
    if not np.all(np.abs(numbers) < _MAX_NS / scale):
        raise pa.ArrowInvalid("beyond 64 bits")
    return pa.array(np.rint(numbers * scale).astype(np.int64))


def _clean_iso(values: pa.Array) -> pa.Array:
    if not pa.types.is_string(values.type):
        raise pa.ArrowInvalid("not text")
    try:
        return values.cast(_NAIVE).cast(pa.int64())
    except pa.ArrowInvalid:
        return values.cast(_ZONED).cast(pa.int64())


def _one_by_one(values: Sequence[Any], parse: Callable[[Any], Any], filler: Any) -> tuple[list[Any], dict[int, str]]:
    parsed, bad = [], {}
    for row, value in enumerate(values):
        try:
            parsed.append(parse(value))
        except _BadValue as error:
            parsed.append(filler)
            bad[row] = str(error)
    return parsed, bad


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _number(value: Any) -> int | float | None:
    """An int if the value is one, because floats cannot hold nanosecond times exactly; None if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        # Python refuses to read a number of thousands of digits.
        if isinstance(value, str) and value.strip().lstrip("+-").isdecimal():
            return int(value)
        number = float(value)
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(number):
        return None
    return value if isinstance(value, int) else number


def _whole(value: Any, low: int, high: int, missing: int | None) -> int:
    allowed = f"allowed: a whole number from {low} to {high}"
    if _is_missing(value):
        if missing is None:
            raise _BadValue(f"is missing; {allowed}")
        return missing
    number = _number(value)
    if number is None or number != int(number) or not low <= number <= high:
        raise _BadValue(f"{_shown(value)}; {allowed}")
    return int(number)


def _arrival(value: Any, unit: TimeUnit) -> int:
    allowed = _allowed_times(unit)
    if _is_missing(value):
        raise _BadValue(f"is missing; {allowed}")
    number = None if unit == "iso" else _number(value)
    if number is not None and 0 <= number < _MAX_NS / _NS_PER_UNIT[unit]:
        return round(number * _NS_PER_UNIT[unit])
    at_ns = _iso_ns(value, unit) if number is None else None
    if at_ns is None or at_ns < 0:
        raise _BadValue(f"{_shown(value)}; {allowed}")
    return at_ns


def _allowed_times(unit: TimeUnit) -> str:
    iso = "an ISO 8601 time from 1970 to 2261, as in 2023-11-16 18:17:03.979"
    number = f"a number of {'seconds' if unit == 'auto' else unit}, 0 or more"
    return f"allowed: {iso if unit == 'iso' else number}{f', or {iso}' if unit == 'auto' else ''}"


def _iso_ns(value: Any, unit: TimeUnit) -> int | None:
    if unit not in ("auto", "iso") or not isinstance(value, str):
        return None
    for kind in (_NAIVE, _ZONED):
        try:
            return int(pa.scalar(value.strip()).cast(kind).value)
        except _NOT_CLEAN:
            continue
    return None


def _label(value: Any, is_mandatory: bool) -> str | None:
    if _is_missing(value):
        if is_mandatory and value is None:
            raise _BadValue("is missing; allowed: text or a whole number")
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise _BadValue(f"{_shown(value)}; allowed: text or a whole number")
    text = str(value)
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise _BadValue(f"{_shown(value)}; allowed: text in UTF-8")
    return text


def _block_ids(value: Any) -> list[int]:
    if not isinstance(value, list) or not all(type(block) is int and 0 <= block < 2**63 for block in value):
        raise _BadValue(f"{_shown(value)}; allowed: a list of whole numbers")
    return value
