"""How an answer is found and verified: targets, confidence and the seeds of both."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from llmserve_env.errors import ConfigError
from llmserve_env.evaluation.seeds import SEED_RANGES

TARGET = 0.95
CONFIDENCE = 0.95
MAX_REPLICAS = 64
MAX_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Protocol:
    """What is asked of a task, and how sure the answer must be."""

    target: float = TARGET
    """Share of requests within a limit, for limits that name no share."""
    confidence: float = CONFIDENCE
    """Confidence with which an accepted configuration keeps its objectives on the traffic of the search."""
    num_search_seeds: int = 8
    num_fresh_seeds: int = 16
    max_replicas: int = MAX_REPLICAS
    profiles: tuple[str, ...] = ()
    """Profiles of the GPUs to choose from; the task's own when empty."""

    def __post_init__(self) -> None:
        for name in ("target", "confidence"):
            value = getattr(self, name)
            if not 0.0 < value <= 1.0 or (name == "confidence" and value == 1.0):
                raise ConfigError(f"--{name} is a share above 0 and up to 1, as in 0.95; got {value:g}")
        for name, least in (("num_search_seeds", 2), ("num_fresh_seeds", 2), ("max_replicas", 1)):
            if getattr(self, name) < least:
                option = {"num_search_seeds": "search-episodes", "num_fresh_seeds": "episodes"}.get(
                    name, "max-replicas"
                )
                raise ConfigError(f"--{option} must be at least {least}; got {getattr(self, name)}")

    def search_seeds(self, rounds: int) -> tuple[int, ...]:
        """Seeds of the search after this many failed verifications, whose seeds have joined it."""
        joined = tuple(SEED_RANGES["answers"][: rounds * self.num_fresh_seeds])
        return (*SEED_RANGES["tuning"][: self.num_search_seeds], *joined)

    def fresh_seeds(self, rounds: int) -> tuple[int, ...]:
        """Seeds of the verification, which no search has seen."""
        return tuple(SEED_RANGES["answers"][rounds * self.num_fresh_seeds : (rounds + 1) * self.num_fresh_seeds])

    def as_dict(self) -> dict[str, Any]:
        """The protocol as plain data, for JSON."""
        return {**asdict(self), "profiles": list(self.profiles)}
