"""Read the measurement files that `tools/profiler/` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llmserve_env.errors import ProfileError
from llmserve_env.json_files import read_json
from llmserve_env.profiles.fitting import Iteration


class Point(BaseModel):
    """One timed iteration: equal decoding sequences, prompt chunks (tokens, past), the median of its replays."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    tier: str
    sequences: int = Field(ge=0)
    context: int = Field(ge=0)
    query_tokens: int = Field(ge=1)
    prefill: tuple[tuple[int, int], ...]
    held_out: bool
    ms: float = Field(gt=0.0)
    quartiles_ms: tuple[float, float]
    replays: int

    @property
    def key(self) -> tuple[object, ...]:
        """What was timed, without the resulting time."""
        return self.model, self.tier, self.sequences, self.context, self.query_tokens, self.prefill

    def iteration(self) -> Iteration:
        """The point as an iteration for the fit."""
        return Iteration(
            tier=self.tier,
            query_tokens=self.query_tokens,
            decoding=self.sequences,
            context_tokens=self.sequences * self.context,
            chunks=len(self.prefill),
            prefill_tokens=sum(n for n, _ in self.prefill),
            prefill_pairs=sum(n * past + n * (n + 1) // 2 for n, past in self.prefill),
            ms=self.ms,
        )


class Measurements(BaseModel):
    """A measurement file of the profiler."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format_version: int
    machine: dict[str, Any]
    kernel_errors: dict[str, float]
    choices: dict[str, dict[str, dict[str, float | str]]]
    points: tuple[Point, ...]
    seconds: float


def load_measurements(path: Path) -> Measurements:
    """Read and check a measurements file."""
    found = read_json(path, "a measurements file of the profiler", ProfileError)
    try:
        return Measurements.model_validate(found)
    except ValidationError as error:
        raise ProfileError(f"{path.name} is not a measurements file of the profiler: {error}") from error
