"""Decisions as actions of Gymnasium's kind: whole numbers, one per thing to decide."""

from __future__ import annotations

from collections.abc import Sequence

from llmserve_env.errors import InvalidActionError
from llmserve_env.fleet.decision import FleetDecision
from llmserve_env.fleet.task import FleetTask

BATCH_LEVELS = 11
"""Shares of batch admission: 0, 0.1, … 1."""


class ActionCodec:
    """Between decisions and vectors of levels: serving and asleep per pool, batch admission and token budget."""

    def __init__(self, task: FleetTask) -> None:
        self._task = task
        self._sleepers = [p for p, pool in enumerate(task.pools) if pool.max_asleep]
        self.token_budgets = task.token_budgets

    @property
    def names(self) -> tuple[str, ...]:
        """What each number of an action decides."""
        pools = self._task.pool_names
        asleep = (f"{pools[p]}.asleep" for p in self._sleepers)
        batch = ("batch_share",) if self._task.batch else ()
        return (*(f"{pool}.serving" for pool in pools), *asleep, *batch, "token_budget")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Levels of each number."""
        serving = (pool.max_replicas - pool.min_replicas + 1 for pool in self._task.pools)
        asleep = (self._task.pools[p].max_asleep + 1 for p in self._sleepers)
        batch = (BATCH_LEVELS,) if self._task.batch else ()
        return (*serving, *asleep, *batch, len(self.token_budgets))

    def decode(self, action: Sequence[int]) -> FleetDecision:
        """The decision that a vector of levels stands for."""
        if len(action) != len(self.sizes):
            raise InvalidActionError(
                f"an action has {len(self.sizes)} numbers, {', '.join(self.names)}; got {len(action)}"
            )
        for name, size, level in zip(self.names, self.sizes, action, strict=True):
            if not 0 <= level < size:
                raise InvalidActionError(f"{name} must be a level from 0 to {size - 1}; got {level}")
        levels = iter(int(level) for level in action)
        serving = tuple(pool.min_replicas + next(levels) for pool in self._task.pools)
        asleep = [0] * len(self._task.pools)
        for p in self._sleepers:
            asleep[p] = next(levels)
        share = next(levels) / (BATCH_LEVELS - 1) if self._task.batch else 0.0
        return FleetDecision(serving, tuple(asleep), share, self.token_budgets[next(levels)])

    def encode(self, decision: FleetDecision) -> list[int]:
        """The levels nearest to a decision."""
        serving = [count - pool.min_replicas for pool, count in zip(self._task.pools, decision.serving, strict=True)]
        asleep = [decision.asleep[p] for p in self._sleepers]
        batch = [round(decision.batch_share * (BATCH_LEVELS - 1))] if self._task.batch else []
        budget = decision.token_budget or self._task.replica.token_budget
        level = min(range(len(self.token_budgets)), key=lambda k: abs(self.token_budgets[k] - budget))
        return [*serving, *asleep, *batch, level]
