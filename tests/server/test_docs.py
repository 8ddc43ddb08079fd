"""The examples of docs/server.md run as printed."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.server.running import ROOT, RunningServer

PAGE = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_there_are_examples_of_every_client() -> None:
    assert len(EXAMPLES) == 3


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=["http", "websocket", "asynchronous"])
def test_an_example_runs_as_printed(running: RunningServer, example: str) -> None:
    program = example.replace("http://localhost:7860", running.url)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert -1.0 <= float(done.stdout) <= 1.0
