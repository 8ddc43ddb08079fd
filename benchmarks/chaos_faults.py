"""The faults of `benchmarks.chaos`: what happens to a server without anybody's ill will."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.chaos_server import ChaosServer

LOCKED_S = 3.0
FULL_S = 3.0
AWAY_S = 5.0
PAUSE_S = 2.0


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong."""

    name: str
    cause: Callable[[ChaosServer], None]

    def run(self, server: ChaosServer) -> dict[str, Any]:
        """Cause it, and give the server a moment under load."""
        self.cause(server)
        time.sleep(PAUSE_S)
        return {"fault": self.name, "times": 1}


def kill(server: ChaosServer) -> None:
    """End the process in the middle of whatever it does, and start it again."""
    server.kill()
    server.start()


def lock(server: ChaosServer) -> None:
    """Hold the store's lock, as a backup program might."""
    foreign = sqlite3.connect(server.folder / "sessions.db", timeout=30.0, isolation_level=None)
    with server.disturbed():
        foreign.execute("BEGIN IMMEDIATE")
        time.sleep(LOCKED_S)
        foreign.execute("ROLLBACK")
    foreign.close()


def fill_disk(server: ChaosServer) -> None:
    """Let the disk take nothing more for a while."""
    with server.disturbed(), server.full_disk():
        time.sleep(FULL_S)


def age(server: ChaosServer) -> None:
    """Let a day pass on the store's clock while sessions are in use; what is in use must stay."""
    day_min = 24 * 60 - 1
    foreign = sqlite3.connect(server.folder / "sessions.db", timeout=30.0)
    with foreign:
        foreign.execute("UPDATE llmserve_clock SET minutes = minutes + ?", (day_min,))
    foreign.close()


SQLITE_FAULTS = (
    Fault("kill -9", kill),
    Fault("another program locks the store", lock),
    Fault("a full disk", fill_disk),
    Fault("a day on the store's clock", age),
)


class Database(Protocol):
    """A PostgreSQL that can be taken away."""

    def stop(self) -> None: ...

    def start(self) -> None: ...


def faults_of(database: Database) -> tuple[Fault, ...]:
    """What happens to a server over PostgreSQL."""

    def take_away(server: ChaosServer) -> None:
        with server.disturbed():
            database.stop()
            time.sleep(AWAY_S)
            database.start()

    return Fault("kill -9", kill), Fault("the database is away", take_away)
