"""The folder through which a running vLLM is steered: what we want, what its scheduler does, what it recorded.

Imported inside vLLM's process, and by the process that steers it.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "LLMSERVE_REAL_CONTROL_DIR"
WANTED, STATUS = "wanted.json", "status.json"
TIMES_ATTRIBUTE = "llmserve_times"
"""Where the worker's times of an iteration travel on its output."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the scheduler is asked to do from its next iteration on."""

    generation: int = 0
    batch_cap: int | None = None
    token_budget: int | None = None
    kv_budget_fraction: float = 1.0
    speculation_depth: int | None = None
    record_to: str | None = None
    """File in the folder for every iteration from now on; a new name starts a new recording."""


@dataclass(frozen=True, slots=True)
class Status:
    """What the scheduler does, and the limits it was started with."""

    generation: int
    batch_cap: int
    token_budget: int
    speculation_depth: int
    num_blocks: int
    """Usable KV blocks of the pool, withheld ones included."""
    withheld_blocks: int
    max_batch_cap: int
    max_token_budget: int
    max_speculation_depth: int
    block_tokens: int
    max_model_len: int
    vocabulary: int
    async_scheduling: bool
    prefix_caching: bool
    iterations: int
    busy_s: float
    """Time spent in iterations since the start."""
    graph_max_tokens: int = 0
    """Largest iteration that was captured as a CUDA graph; 0 where none is."""
    num_running: int = 0
    num_waiting: int = 0
    used_blocks: int = 0
    preemptions: int = 0
    """Since the start."""


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace the file atomically, so that a reader never sees half of it."""
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(content), encoding="utf-8")
    partial.replace(path)


class StatusWriter:
    """Writes the newest status: at once, or in a thread, so that no iteration waits for a file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / STATUS
        self._newest: Status | None = None
        self._wake, self._lock = threading.Event(), threading.Lock()
        threading.Thread(target=self._run, name="llmserve-status", daemon=True).start()

    def write(self, status: Status) -> None:
        """Write now; an older status that still waits is dropped."""
        with self._lock:
            self._newest = None
            write_json(self._path, asdict(status))

    def write_soon(self, status: Status) -> None:
        """Leave the writing to the thread."""
        self._newest = status
        self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            with self._lock:
                status, self._newest = self._newest, None
                if status is not None:
                    # A full disk or a removed folder must not end the reports of an engine that goes on serving.
                    with contextlib.suppress(OSError):
                        write_json(self._path, asdict(status))


def write_wanted(folder: Path, wanted: Wanted) -> None:
    """Write what is wanted of the scheduler."""
    write_json(folder / WANTED, asdict(wanted))


def read_wanted(folder: Path) -> Wanted:
    """Read what is wanted of the scheduler."""
    return Wanted(**json.loads((folder / WANTED).read_text(encoding="utf-8")))


def read_status(folder: Path) -> Status:
    """The status that the scheduler wrote last."""
    found = json.loads((folder / STATUS).read_text(encoding="utf-8"))
    return Status(**{field.name: found[field.name] for field in fields(Status)})
