"""The server as a process that can be killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parent.parent.parent
LISTENING = re.compile(r"open http://[\d.]+:(\d+)/web")


class RunningServer:
    """`python -m server.app` on a free port; ready when the constructor returns."""

    def __init__(self, store: str, *, workers: int = 1, port: int = 0, **variables: str) -> None:
        limited = ("REQUESTS_PER_S", "STEPS_PER_S", "PLAYS_PER_S", "EXPENSIVE_PER_MIN")
        limits = {f"LLMSERVE_{name}": "0" for name in limited}
        chosen = {"LLMSERVE_STORE": store, "LLMSERVE_OPENENV_CONSOLE": "false", "LLMSERVE_LOG_REQUESTS": "false"}
        arguments = [sys.executable, "-m", "server.app", "--port", str(port), "--workers", str(workers)]
        self._process = subprocess.Popen(
            arguments,
            cwd=ROOT,
            env={**os.environ, **limits, **chosen, **variables},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.said: list[str] = []
        """Lines of its log."""
        self.port = self._wait_until_listening()
        self.url = f"http://127.0.0.1:{self.port}"

    def _wait_until_listening(self) -> int:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.said.append(line)
            if found := LISTENING.search(line):
                # What it says from here on must be read too, or it would wait for a reader.
                self._reader = threading.Thread(target=self.said.extend, args=(self._process.stderr,), daemon=True)
                self._reader.start()
                return int(found.group(1))
        raise AssertionError("the server did not start:\n" + "".join(self.said))

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """As `kill -9` does, to all its processes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._finish()

    def stop(self) -> None:
        """As an operator would."""
        if self._process.poll() is None:
            self._process.terminate()
        self._finish()

    def _finish(self) -> None:
        self._process.wait(timeout=30)
        self._reader.join(timeout=30)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
