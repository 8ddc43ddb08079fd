"""The example files of docs/own_agents.md and of other pages, written out as a reader would."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "own_agents.md"
EXAMPLE = re.compile(r"<!-- example: (\S+) -->\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def examples(document: Path = DOCUMENT) -> dict[str, str]:
    """Text of every example by its file's name."""
    return dict(EXAMPLE.findall(document.read_text(encoding="utf-8")))


def written(name: str, folder: Path, document: Path = DOCUMENT) -> Path:
    """An example as a file."""
    path = folder / name
    path.write_text(examples(document)[name], encoding="utf-8")
    return path


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_service(folder: Path) -> Iterator[str]:
    """The example service in a process of its own; its address."""
    port = free_port()
    process = subprocess.Popen([sys.executable, written("my_service.py", folder), str(port)], stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], deadline_s: float = 60.0) -> None:
    until = time.monotonic() + deadline_s
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, "the example service ended"
    raise AssertionError("the example service does not listen")
