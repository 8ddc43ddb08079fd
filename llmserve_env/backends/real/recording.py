"""Reads the iterations that vLLM's scheduler recorded, in the form that fitting a latency profile needs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from llmserve_env.errors import ProviderError
from llmserve_env.profiles.fitting import Iteration
from llmserve_env.profiles.timed_host import Launch
from llmserve_env.units import MS_PER_S

NAME = re.compile(r"llmserve-\d+-(\d+)")


@dataclass(frozen=True, slots=True)
class Recording:
    """What an engine did: its iterations, and when it first saw and first answered each request (`time.monotonic`)."""

    iterations: tuple[Iteration, ...]
    """With the device's time if the engine recorded it separately from the host's, otherwise with the whole time."""
    seen_at_s: Mapping[int, float]
    answered_at_s: Mapping[int, float]
    launches: tuple[Launch, ...] = ()
    """The host's time beside them; empty if the engine did not record it separately from the device's."""

    @property
    def busy_ms(self) -> float:
        """Time of all iterations."""
        return sum(iteration.ms for iteration in self.iterations)

    @property
    def host_ms(self) -> float:
        """Time of the host beside them."""
        return sum(launch.launch_ms + launch.output_ms for launch in self.launches)


def read_recording(path: Path, tier: str) -> Recording:
    """The iterations a scheduler has written; those with drafts are left out, as their time includes proposing them."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, json.JSONDecodeError) as error:
        raise ProviderError(f"{path} holds no recorded iterations: {error}") from error
    seen_at_s, answered_at_s = {}, {}
    for row in rows:
        seen_at_s.update({index: at_s for name, at_s in row["added"].items() if (index := number_in(name)) >= 0})
        answered_at_s.update({index: row["end"] for name in row["first"] if (index := number_in(name)) >= 0})
    leads_s = _leads_s(rows)
    launches = _launches(rows, leads_s) if all("device_ms" in row for row in rows) else []
    return Recording(tuple(_iterations(rows, leads_s, tier)), seen_at_s, answered_at_s, tuple(launches))


def number_in(name: str) -> int:
    """The number of a request, from its name in the engine's records; -1 for a request of somebody else."""
    found = NAME.search(name)
    return int(found.group(1)) if found else -1


def _leads_s(rows: list[dict[str, Any]]) -> list[float]:
    """Time from the end of the iteration before until each began; after idle time the median."""
    known = [b["start"] - a["end"] for a, b in pairwise(rows) if a["left"]]
    usual_s = median(known) if known else 0.0
    return [
        row["start"] - before["end"] if before and before["left"] else usual_s
        for before, row in zip([None, *rows], rows, strict=False)
    ]


def _iterations(rows: list[dict[str, Any]], leads_s: list[float], tier: str) -> list[Iteration]:
    """Iterations with the device's time, or with their durations; one lasts from the end of the one before."""
    found = []
    for row, lead_s in zip(rows, leads_s, strict=True):
        # A GPU that waits for its kernels to be launched tells nothing about itself.
        waits = not row.get("blocks", True) and row["device_ms"] < (row["launched"] - row["start"]) * MS_PER_S
        if row["drafts"] == 0 and not waits:
            ms = row["device_ms"] if "device_ms" in row else (row["end"] - row["start"] + lead_s) * MS_PER_S
            work = (row["decoding"], row["context"], row["chunks"], row["prefill_tokens"], row["pairs"])
            found.append(Iteration(tier, 1, *work, ms))
    return found


def _launches(rows: list[dict[str, Any]], leads_s: list[float]) -> list[Launch]:
    """What the host took: up to the launch of the last kernel, and to take the output in."""
    found = []
    for row, lead_s in zip(rows, leads_s, strict=True):
        launch_ms = (row["launched"] - row["start"] + lead_s) * MS_PER_S
        output_ms = (row["end"] - row["taken"]) * MS_PER_S
        if row["blocks"]:
            # The model ran inside the call that launched it, and sampling is the host's own work.
            launch_ms -= row["device_ms"]
            output_ms += (row["taken"] - row["launched"]) * MS_PER_S
        found.append(
            Launch(
                sequences=row["decoding"] + row["chunks"],
                admissions=row["admitted"],
                tokens=row["decoding"] + row["drafts"] + row["prefill_tokens"],
                prefill_tokens=row["prefill_tokens"],
                launch_ms=launch_ms,
                output_ms=output_ms,
            )
        )
    return found
