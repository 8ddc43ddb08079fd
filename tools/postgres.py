"""A throwaway PostgreSQL for tests and benchmarks, where the machine has its programs."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self


def programs() -> Path | None:
    """The folder with `initdb` and `pg_ctl`, if there is one."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


class Cluster:
    """A fresh cluster on a free port of this machine, which can be stopped and started again."""

    def __enter__(self) -> Self:
        folder = programs()
        assert folder is not None
        # PostgreSQL refuses to run as root, so root hands over to the account that comes with it.
        account = {"user": "postgres"} if os.geteuid() == 0 else {}
        self._run: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL, **account}
        self._programs, self._folder = folder, tempfile.TemporaryDirectory()
        if account:
            shutil.chown(self._folder.name, "postgres")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._data = Path(self._folder.name) / "data"
        subprocess.run([folder / "initdb", "-D", self._data, "-U", "llmserve", "-A", "trust"], **self._run)
        self.start()
        return self

    @property
    def url(self) -> str:
        return f"postgresql://llmserve@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        """Ready when this returns."""
        options = f"-p {self._port} -k {self._folder.name} -c listen_addresses=127.0.0.1 -c fsync=off"
        log = Path(self._folder.name) / "log"
        self._control("-o", options, "-l", log, "start")

    def stop(self) -> None:
        """As a machine that loses its power."""
        self._control("-m", "immediate", "stop")

    def _control(self, *arguments: str | Path) -> None:
        subprocess.run([self._programs / "pg_ctl", "-D", self._data, "-w", *arguments], **self._run)

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._folder.cleanup()


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a cluster."""
    with Cluster() as cluster:
        yield cluster.url
