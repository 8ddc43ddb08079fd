"""Unit conversions where data enters and leaves the engine."""

from __future__ import annotations

import pytest

from llmserve_env import units


@pytest.mark.parametrize(("duration_ms", "duration_ps"), [(0, 0), (1, 10**9), (0.1, 10**8), (5.1, 5_100_000_000)])
def test_milliseconds_become_whole_picoseconds_and_come_back(duration_ms: float, duration_ps: int) -> None:
    assert units.ms_to_ps(duration_ms) == duration_ps
    assert units.ps_to_ms(duration_ps) == duration_ms


def test_the_units_of_time_nest() -> None:
    assert (
        units.s_to_ps(1.5) == 1_500 * units.PS_PER_MS == 1_500_000 * units.PS_PER_US == 1_500_000_000 * units.PS_PER_NS
    )
    assert units.ps_to_s(units.PS_PER_S // 4) == 0.25


def test_gigabytes_are_decimal() -> None:
    assert units.gb_to_bytes(40) == 40_000_000_000
    assert units.bytes_to_gb(1_500_000_000) == 1.5


def test_never_leaves_room_to_add_a_start_time() -> None:
    longest_start_ps = units.NEVER_PS - 1
    assert units.NEVER_PS + longest_start_ps < 2**63
