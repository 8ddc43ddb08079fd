"""The parts of planning are a chain: each uses only those before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture import imports

ROOT = Path(__file__).resolve().parents[2]
CHAIN = ("tuning", "plan_calibration", "freezing", "answer", "capacity", "report", "fleet_page")
PLANNING = ROOT / "llmserve_env" / "planning"


def part_of(path: Path) -> str:
    return path.relative_to(PLANNING).with_suffix("").parts[0]


def test_the_chain_names_every_part() -> None:
    assert {part_of(path) for path in PLANNING.rglob("*.py")} == {*CHAIN, "__init__"}


@pytest.mark.parametrize("part", CHAIN)
def test_a_part_uses_only_those_before_it(part: str) -> None:
    allowed = CHAIN[: CHAIN.index(part) + 1]
    used = {
        name.split(".")[2]
        for path in PLANNING.rglob("*.py")
        if part_of(path) == part
        for _, name in imports(ROOT, path)
        if name.startswith("llmserve_env.planning.")
    }
    assert used <= set(allowed)
