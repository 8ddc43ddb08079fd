"""The server that `benchmarks.chaos` attacks: a process that can be killed and started again on the same port."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SETTLE_S = 6.0
"""A call waits five seconds for a store that is locked."""
LISTENING = re.compile(r"open http://[\w.]+:(\d+)/web")


class ChaosServer:
    """`python -m server.app` over a store in a folder, with limits for memory and disk."""

    def __init__(self, folder: Path, memory_mb: int, store_mb: int, store: str = "") -> None:
        self.folder = folder
        self.port = 0
        self.is_up = False
        self.is_disturbed = False
        """Whether its store is out of order at the moment, so that it may refuse."""
        self._variables = {
            "LLMSERVE_DATA_DIR": str(folder),
            "LLMSERVE_STORE": store,
            "LLMSERVE_MEMORY_MB": str(memory_mb),
            "LLMSERVE_STORE_MB": str(store_mb),
            "LLMSERVE_LOG_REQUESTS": "false",
            "LLMSERVE_HEADER_TIMEOUT_S": "3",
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listening when this returns."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "server.app", "--port", str(self.port)],
            env={**os.environ, **self._variables},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            found = LISTENING.search(line)
            if found:
                self.port = int(found.group(1))
                # What it says from here on must be read too, or it would wait for a reader.
                threading.Thread(target=deque, args=(self._process.stderr, 0), daemon=True).start()
                self.is_up = True
                return
        raise SystemExit("the server did not start")

    def kill(self) -> None:
        """As `kill -9` does."""
        self.is_up = False
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """As an operator would."""
        self.is_up = False
        self._process.terminate()
        self._process.wait()

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        """While its store is out of order, and until its answers of that time have arrived."""
        self.is_disturbed = True
        yield
        time.sleep(SETTLE_S)
        self.is_disturbed = False

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Let no file of the server grow, as if the disk were full."""
        allowed = resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (0, allowed[1]))
        yield
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, allowed)

    def resident_mb(self) -> float:
        """Memory of the process now."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
            return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1e3
        except (OSError, IndexError):
            return 0.0

    def disk_mb(self) -> float:
        """Size of everything in its folder."""
        return size_mb(self.folder)


def size_mb(folder: Path) -> float:
    """Size of all files in a folder."""
    sizes = []
    for path in folder.rglob("*"):
        # It may have been removed in the meantime.
        with suppress(OSError):
            sizes.append(path.stat().st_size)
    return sum(sizes) / 1e6
