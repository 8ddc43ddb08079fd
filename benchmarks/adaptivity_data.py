"""What the searches of `benchmarks.adaptivity --search` found, kept so that the benchmark need not search again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("adaptivity_found.json")


def found() -> dict[str, Any]:
    """Per task: `adaptive` and `reactive` rules, and the best `constant`; with how they were found."""
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def keep(content: dict[str, Any]) -> None:
    """Write the file."""
    FILE.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
