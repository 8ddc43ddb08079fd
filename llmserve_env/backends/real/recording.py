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
from llmserve_env.units import MS_PER_S

NAME = re.compile(r"llmserve-\d+-(\d+)")


@dataclass(frozen=True, slots=True)
class Recording:
    """What an engine did: its iterations, and when it first saw and first answered each request (`time.monotonic`)."""

    iterations: tuple[Iteration, ...]
    seen_at_s: Mapping[int, float]
    answered_at_s: Mapping[int, float]

    @property
    def busy_ms(self) -> float:
        """Time of all iterations."""
        return sum(iteration.ms for iteration in self.iterations)


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
    return Recording(tuple(_iterations(rows, tier)), seen_at_s, answered_at_s)


def number_in(name: str) -> int:
    """The number of a request, from its name in the engine's records; -1 for a request of somebody else."""
    found = NAME.search(name)
    return int(found.group(1)) if found else -1


def _iterations(rows: list[dict[str, Any]], tier: str) -> list[Iteration]:
    """Iterations with their durations; one lasts from the end of the one before, so time between them counts."""
    leads_s = [b["start"] - a["end"] for a, b in pairwise(rows) if a["left"]]
    # An iteration after idle time has no predecessor and is given the median lead.
    usual_s = median(leads_s) if leads_s else 0.0
    found = []
    for before, row in zip([None, *rows], rows, strict=False):
        lead_s = row["start"] - before["end"] if before and before["left"] else usual_s
        if row["drafts"] == 0:
            ms = (row["end"] - row["start"] + lead_s) * MS_PER_S
            work = (row["decoding"], row["context"], row["chunks"], row["prefill_tokens"], row["pairs"])
            found.append(Iteration(tier, 1, *work, ms))
    return found
