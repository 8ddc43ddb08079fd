"""Rates of real services over two weeks: reading them, filling their gaps, and cutting them into episodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.errors import TraceFormatError
from llmserve_env.json_files import read_json

DATA = Path(__file__).parent / "data" / "series"
Half = Literal["train", "test"]
HALVES: tuple[Half, ...] = get_args(Half)
MIN_DAYS = 2.0
MAX_VALUE = 1e9
"""Requests per second, and the dispersion of their counts; no service has that many."""
MAX_MISSING = 0.25
"""Share of missing windows from which filling them would be inventing a service."""
S_PER_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class RateSeries:
    """Mean request rate of a service in equal windows; the first half is for training, the second for testing."""

    name: str
    source: str
    window_s: float
    rate_rps: Array
    dispersion: Array
    """Index of dispersion of the arrivals: variance over mean of their counts."""
    filled: tuple[int, ...]
    """Windows without data, filled with a straight line between their neighbours."""

    @property
    def length_s(self) -> float:
        return len(self.rate_rps) * self.window_s

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the series, for people to read."""
        if not self.filled:
            return ()
        share = len(self.filled) / len(self.rate_rps)
        return (
            f"{self.name}: {len(self.filled)} of {len(self.rate_rps)} windows ({share:.1%}) have no data and are "
            "filled with straight lines between their neighbours",
        )

    def swung(self, exponent: float) -> RateSeries:
        """A service that swings less (below 1) or more (above 1) than this one, at the same times."""
        return replace(self, rate_rps=self.rate_rps**exponent)

    def starts(self, half: Half, length_s: float) -> tuple[float, ...]:
        """Starts of the episodes of this length that follow one another in a half of the series."""
        if half not in HALVES:
            raise ValueError(f"half must be one of {', '.join(HALVES)}; got {half!r}")
        begin, end = (0.0, self.length_s / 2) if half == "train" else (self.length_s / 2, self.length_s)
        if end - begin < length_s:
            raise TraceFormatError(
                f"{self.name}: half of the series is {end - begin:g} s and an episode {length_s:g} s; give a longer one"
            )
        return tuple(begin + k * length_s for k in range(int((end - begin) // length_s)))

    def at(self, time_s: Array) -> tuple[Array, Array]:
        """(rate as a share of the series' mean, dispersion) at these times; rates join the middles of windows."""
        middles = (np.arange(len(self.rate_rps)) + 0.5) * self.window_s
        rate: Array = np.interp(time_s, middles, self.rate_rps) / self.rate_rps.mean()
        window = np.clip(time_s // self.window_s, 0, len(self.dispersion) - 1).astype(int)
        return rate, self.dispersion[window]


def shipped_series() -> tuple[str, ...]:
    """Names of the series in the package."""
    return tuple(sorted(path.stem for path in DATA.glob("*.json")))


def load_series(name: str | Path) -> RateSeries:
    """A series of the package by name, or one in a file ending in `.json`; TraceFormatError says what is wrong."""
    path = Path(name) if str(name).endswith(".json") else DATA / f"{name}.json"
    if not path.is_file():
        raise TraceFormatError(
            f"no series {str(name)!r}; choose one of {', '.join(shipped_series())}, or give the path of a .json file"
        )
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=16)
def _read(path: Path, _changed_at_ns: int) -> RateSeries:
    return parse_series(read_json(path, "JSON", TraceFormatError), path.stem, str(path))


def parse_series(data: Any, name: str, where: str) -> RateSeries:
    """The series that a mapping describes: `rate_rps` in windows of `window_s`; `idc` and `missing` are optional."""
    if not isinstance(data, dict) or "rate_rps" not in data or "window_s" not in data:
        raise TraceFormatError(f"{where}: needs window_s and rate_rps, a list with one rate per window")
    window_s = data["window_s"]
    if isinstance(window_s, bool) or not isinstance(window_s, int | float) or not 1.0 <= window_s <= S_PER_DAY:
        raise TraceFormatError(f"{where}: window_s must be a number from 1 to {S_PER_DAY:g}; got {window_s!r}")
    rate = _numbers(data["rate_rps"], f"{where}: rate_rps")
    if len(rate) * window_s < MIN_DAYS * S_PER_DAY:
        raise TraceFormatError(
            f"{where}: {len(rate)} windows of {window_s:g} s are {len(rate) * window_s / S_PER_DAY:.2f} days; "
            f"at least {MIN_DAYS:g} are needed"
        )
    missing = _missing(data.get("missing", []), rate, where)
    rate = _filled(rate, missing, where)
    if "idc" in data:
        dispersion = _numbers(data["idc"], f"{where}: idc")
        if len(dispersion) != len(rate):
            raise TraceFormatError(f"{where}: idc has {len(dispersion)} windows and rate_rps {len(rate)}")
        dispersion = np.maximum(_filled(dispersion, missing | ~np.isfinite(dispersion), where), 1.0)
    else:
        dispersion = np.ones(len(rate))
    gaps = tuple(int(k) for k in np.flatnonzero(missing))
    return RateSeries(name, str(data.get("source", where)), float(window_s), rate, dispersion, gaps)


def _numbers(values: Any, where: str) -> Array:
    """A list of numbers; null stands for a window without data."""
    if not isinstance(values, list):
        raise TraceFormatError(f"{where} must be a list of numbers; got {type(values).__name__}")
    for k, value in enumerate(values):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise TraceFormatError(f"{where}[{k}] must be a number, or null for a window without data; got {value!r}")
        if value is not None and not 0 <= value <= MAX_VALUE:
            raise TraceFormatError(f"{where}[{k}] must be from 0 to {MAX_VALUE:g}; got {str(value)[:20]}")
    found: Array = np.array([np.nan if value is None else value for value in values], np.float64)
    return found


def _missing(named: Any, rate: Array, where: str) -> Array:
    if not isinstance(named, list) or any(isinstance(k, bool) or not isinstance(k, int) for k in named):
        raise TraceFormatError(f"{where}: missing must be a list of window numbers")
    outside = [k for k in named if not 0 <= k < len(rate)]
    if outside:
        raise TraceFormatError(f"{where}: missing names window {outside[0]}; the series has 0 to {len(rate) - 1}")
    missing: Array = ~np.isfinite(rate)
    missing[named] = True
    return missing


def _filled(values: Array, missing: Array, where: str) -> Array:
    if missing.mean() > MAX_MISSING:
        raise TraceFormatError(
            f"{where}: {int(missing.sum())} of {len(values)} windows have no data; at most {MAX_MISSING:.0%} are filled"
        )
    known = np.flatnonzero(~missing)
    filled: Array = values.copy()
    filled[missing] = np.interp(np.flatnonzero(missing), known, values[known])
    if filled.mean() <= 0.0:
        raise TraceFormatError(f"{where}: every rate is 0; there is nothing to serve")
    return filled
