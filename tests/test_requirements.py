"""The pinned requirements answer what `pyproject.toml` asks; after a change there, `make lock` makes this pass."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PIN = re.compile(r"^([a-z0-9._-]+)==([^\s;]+)((?:.*\\\n)(?:\s+--hash=sha256:[0-9a-f]{64}(?: \\)?\n?)+)?", re.MULTILINE)


def pins(*files: str) -> dict[str, str]:
    """Name -> version of everything pinned in the given files."""
    return {name: version for file in files for name, version, _ in PIN.findall((ROOT / file).read_text("utf-8"))}


def torch_pin() -> dict[str, str]:
    """The one pin that the Makefile holds itself."""
    found = re.search(r"^TORCH \?= torch==(\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    return {"torch": found.group(1)}


@pytest.mark.parametrize(
    ("asked", "files"),
    [
        (PROJECT["dependencies"], ["requirements.txt"]),
        (PROJECT["optional-dependencies"]["dev"], ["requirements.txt", "requirements-dev.txt"]),
        (
            PROJECT["optional-dependencies"]["train"],
            ["requirements.txt", "requirements-dev.txt", "requirements-train.txt"],
        ),
    ],
    ids=["runtime", "dev", "train"],
)
def test_every_range_has_its_pin(asked: list[str], files: list[str]) -> None:
    pinned = pins(*files) | torch_pin()
    wanted = {canonicalize_name(need.name): need.specifier for need in map(Requirement, asked)}
    assert [name for name in wanted if name not in pinned] == []
    assert [name for name, allowed in wanted.items() if pinned[name] not in allowed] == []


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-dev.txt", "requirements-train.txt"])
def test_every_pin_has_hashes_and_nothing_else_is_installed(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    found = PIN.findall(text)
    assert found
    assert [name for name, _, hashes in found if not hashes] == []
    other = [line for line in text.splitlines() if line.startswith("-") or "://" in line]
    assert other == []


def test_training_pins_leave_the_cuda_stack_out() -> None:
    assert [n for n in pins("requirements-train.txt") if re.match(r"torch$|triton|nvidia|cuda", n)] == []
