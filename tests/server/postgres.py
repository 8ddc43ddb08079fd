"""A PostgreSQL of the tests' own, where the machine has its programs."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def programs() -> Path | None:
    """The folder with `initdb` and `pg_ctl`, if there is one."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


@contextmanager
def postgres() -> Iterator[str]:
    """A fresh cluster on a free port of this machine; its URL."""
    folder = programs()
    assert folder is not None
    # PostgreSQL refuses to run as root, so root hands over to the account that comes with it.
    account = {"user": "postgres"} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory() as name, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        data = Path(name) / "data"
        if account:
            shutil.chown(name, "postgres")
        options = f"-p {port} -k {name} -c listen_addresses=127.0.0.1 -c fsync=off"
        run = {"check": True, "stdout": subprocess.DEVNULL, **account}
        subprocess.run([folder / "initdb", "-D", data, "-U", "llmserve", "-A", "trust"], **run)  # type: ignore[call-overload]
        start = [folder / "pg_ctl", "-D", data, "-o", options, "-w", "-l", Path(name) / "log", "start"]
        subprocess.run(start, **run)  # type: ignore[call-overload]
        try:
            yield f"postgresql://llmserve@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([folder / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop"], **run)  # type: ignore[call-overload]
