"""Profiles and measurements shared by several tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmserve_env.profiles import Profile, load_profile
from llmserve_env.profiles.measurements import Measurements, load_measurements
from llmserve_env.profiles.store import DATA

MEASUREMENTS = Path(__file__).parents[2] / "tools" / "profiler" / "measurements"
FITTED = ("fp16", "int8-int4", "random")
ADDED = ("fp8",)
"""Measured later, and fitted with the attention of the others."""


@pytest.fixture(scope="session")
def h200() -> Profile:
    return load_profile("h200-141gb.llama-3-8b")


@pytest.fixture(scope="session")
def measurements() -> dict[str, Measurements]:
    return {
        name: load_measurements(MEASUREMENTS / f"h200-141gb.{name}.json") for name in (*FITTED, *ADDED, "independent")
    }


@pytest.fixture
def broken_profile(tmp_path: Path) -> Callable[[Callable[[dict[str, Any]], None]], Path]:
    """A modified copy of a shipped profile file."""

    def write(change: Callable[[dict[str, Any]], None]) -> Path:
        data = json.loads((DATA / "a100-40gb.llama-3-8b.json").read_text())
        change(data)
        path = tmp_path / "broken.json"
        path.write_text(json.dumps(data))
        return path

    return write
