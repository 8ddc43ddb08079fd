"""The random streams of one source of traffic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmserve_env.errors import ConfigError
from llmserve_env.rng import ARRIVALS_STREAM, JITTER_STREAM, LENGTHS_STREAM, MIX_STREAM

# Values are part of the reproducibility contract: append, never renumber.
ARRIVAL_GAPS = (ARRIVALS_STREAM, 0)
RATE_CHANGES = (JITTER_STREAM, 0)
DRIFT_PHASE = (JITTER_STREAM, 1)
REQUEST_KIND = (MIX_STREAM, 0)
PREFIX_GROUP = (MIX_STREAM, 1)
PROMPT_TOKENS = (LENGTHS_STREAM, 0)
OUTPUT_TOKENS = (LENGTHS_STREAM, 1)
NUM_TURNS = (LENGTHS_STREAM, 2)
THINK_TIME = (LENGTHS_STREAM, 3)


@dataclass(frozen=True, slots=True)
class SourceStreams:
    """Independent generators per purpose and turn; a draw from one affects neither the others nor other sources."""

    seed: int
    source: int

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ConfigError(f"a seed must be 0 or greater; got {self.seed}")

    def generator(self, purpose: tuple[int, int], turn: int = 0) -> np.random.Generator:
        """The stream of this purpose, from its beginning."""
        name, column = purpose
        key = np.random.SeedSequence(self.seed, spawn_key=(name, self.source, column, turn))
        return np.random.Generator(np.random.Philox(key))
