"""The simulator's interface: load requests, advance window by window, read records, branch with snapshots."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.fleet import FleetOrders, FleetScript, load_script
from llmserve_env.engine.kernels.compilation import is_compiled, machine_code
from llmserve_env.engine.kernels.deployment_loop import advance
from llmserve_env.engine.kernels.measure import measure
from llmserve_env.engine.knobs import KNOBS, KNOBS_DTYPE, ServingKnobs, default_knobs, named
from llmserve_env.engine.layout import TTFT_RING
from llmserve_env.engine.loading import load_requests, make_pending
from llmserve_env.engine.metrics import METRICS_DTYPE
from llmserve_env.engine.state import (
    MUTABLE_FIELDS,
    EngineState,
    bytes_of,
    engine_tables,
    new_state,
    pristine_state,
    records,
)
from llmserve_env.errors import InvariantViolation
from llmserve_env.request_table import RequestTable

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """Everything that changes while an engine runs; a restored engine continues as if it had never been interrupted."""

    arrays: tuple[Array, ...]

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)


T = TypeVar("T")
MAX_SHARED = 32
"""Deployments whose arrays are cached; those of a large fleet take megabytes."""


class _PerDeployment(Generic[T]):
    """Read-only arrays of a deployment, made once and shared by all batches that run it."""

    def __init__(self, make: Callable[..., T]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._kept: OrderedDict[tuple[int, int], tuple[Deployment, T]] = OrderedDict()

    def __call__(self, deployment: Deployment, detail: int) -> T:
        # Keyed by identity, because comparing all cost curves would take longer than sharing the arrays saves.
        key = (id(deployment), detail)
        with self._lock:
            kept, found = self._kept.pop(key, (None, None))
            if kept is not deployment or found is None:
                found = self._make(deployment, detail)
            self._kept[key] = (deployment, found)
            if len(self._kept) > MAX_SHARED:
                self._kept.popitem(last=False)
        return found


shared_tables = _PerDeployment(engine_tables)
shared_pristine_state = _PerDeployment(pristine_state)


@cache
def announce_compilation() -> None:
    """Warn once, before it happens, that the first run of this version compiles its kernels."""
    if not is_compiled(advance):
        _log.warning("compiling the simulator's kernels: about fifteen seconds, once per version and machine")


class EngineBatch:
    """Many independent deployments of one kind, advanced together in one compiled call."""

    def __init__(
        self,
        deployment: Deployment,
        num_environments: int,
        max_requests: int,
        *,
        step_every_iteration: bool = False,
        log_rows: int = 0,
        script_shape: tuple[int, int] = (1, 0),
    ) -> None:
        announce_compilation()
        self.deployment = deployment
        self._tables = shared_tables(deployment, step_every_iteration or log_rows > 0)
        self.state: EngineState = new_state(deployment, num_environments, max_requests, log_rows, script_shape)
        self._pristine = shared_pristine_state(deployment, max_requests)
        self.knobs = records((num_environments,), KNOBS_DTYPE)
        self.knobs[:] = named(default_knobs(deployment))
        self.metrics = records((num_environments,), METRICS_DTYPE)
        self._until_ps = np.zeros(num_environments, np.int64)
        self._waits = np.empty(TTFT_RING, np.int64)

    @property
    def max_requests(self) -> int:
        """Requests for which each environment has room."""
        return int(self.state.progress.shape[1])

    def make_room(self, num_requests: int) -> None:
        """Grow the arrays to this many requests per environment; running episodes are unaffected."""
        held = self.max_requests
        if num_requests <= held:
            return
        grown = new_state(self.deployment, self.state.progress.shape[0], num_requests)
        for name in ("progress", "requests"):
            getattr(grown, name)[:, :held] = getattr(self.state, name)
        self.state = self.state._replace(progress=grown.progress, requests=grown.requests)
        self._pristine = shared_pristine_state(self.deployment, num_requests)

    def load(self, index: int, requests: RequestTable, seed: int, script: FleetScript | None = None) -> None:
        """Start environment `index` at time zero with these requests and, for a changing fleet, this script."""
        load_requests(self.state, index, self._pristine, self.deployment, requests, seed)
        if script is not None:
            load_script(self.state, index, script)

    def append(self, index: int, rows: Array) -> None:
        """Append request records to environment `index`: ordered by arrival, and later than those it has."""
        environment, requests = self.state.environment[index], self.state.requests[index]
        held = int(environment["num_requests"])
        if held + len(rows) > len(requests):
            raise ValueError(f"{held} and {len(rows)} more requests exceed the {len(requests)} this state was made for")
        arrivals = rows["arrival_at_ps"]
        earliest = max(int(environment["now_ps"]), int(requests[held - 1]["arrival_at_ps"]) if held else 0)
        if len(rows) and (arrivals[0] < earliest or np.any(np.diff(arrivals) < 0)):
            raise ValueError(f"requests must arrive in order, and from {earliest} ps on; the first at {arrivals[0]} ps")
        bytes_of(requests[held : held + len(rows)])[...] = bytes_of(rows)
        make_pending(self.state, index, self._pristine, slice(held, held + len(rows)))
        environment["num_requests"] = held + len(rows)

    def order(self, index: int, orders: FleetOrders) -> None:
        """Set what the next windows of environment `index` order from each pool."""
        self.state.pools[index]["serving_order"] = orders.serving
        self.state.pools[index]["asleep_order"] = orders.asleep

    def replay_acceptance(self, per_request: list[Array]) -> None:
        """Use recorded draft verdicts (1 accepted) per request and output position instead of drawing them."""
        recorded = np.zeros((len(per_request), max(len(flags) for flags in per_request)), np.uint8)
        for row, flags in zip(recorded, per_request, strict=True):
            row[: len(flags)] = flags
        self._tables = self._tables._replace(recorded=recorded)

    @cached_property
    def _advance(self) -> Callable[..., Any]:
        return machine_code(advance, self._tables, self.state, self.knobs, self._until_ps)

    @cached_property
    def _measure(self) -> Callable[..., Any]:
        return machine_code(measure, self._tables, self.state, self.metrics, self._waits)

    def advance(self, until_ps: Array | int) -> None:
        """Serve every environment until its own `until_ps`, under `self.knobs`."""
        self._until_ps[:] = until_ps
        if self._advance(self._tables, self.state, self.knobs, self._until_ps):
            raise InvariantViolation("a replica made no progress; please report the task, seed and actions")

    def measure(self) -> Array:
        """Metrics of the window just served; call once per window."""
        self._measure(self._tables, self.state, self.metrics, self._waits)
        return self.metrics

    @property
    def num_bytes(self) -> int:
        """Memory that this batch alone occupies."""
        return sum(array.nbytes for array in self.state)

    def snapshot(self) -> EngineSnapshot:
        """A copy of the present state, for `restore`."""
        return EngineSnapshot(tuple(bytes_of(getattr(self.state, name)).copy() for name in MUTABLE_FIELDS))

    def restore(self, snapshot: EngineSnapshot) -> None:
        """Return to a snapshot that was taken from this batch."""
        for name, array in zip(MUTABLE_FIELDS, snapshot.arrays, strict=True):
            bytes_of(getattr(self.state, name))[...] = array


class Engine(EngineBatch):
    """One deployment serving one request table."""

    def __init__(
        self,
        deployment: Deployment,
        requests: RequestTable,
        seed: int,
        *,
        step_every_iteration: bool = False,
        log_rows: int = 0,
        script: FleetScript | None = None,
    ) -> None:
        super().__init__(
            deployment,
            1,
            len(requests),
            step_every_iteration=step_every_iteration,
            log_rows=log_rows,
            script_shape=(1, 0) if script is None else (script.launch_delays_ps.shape[1], len(script.capacity)),
        )
        self.load(0, requests, seed, script)
        self._rows = tuple(row.on(deployment) for row in KNOBS)
        self._in_force: ServingKnobs | None = None

    def serve(self, knobs: ServingKnobs, until_ps: int) -> None:
        """Serve until `until_ps` under these knobs."""
        if until_ps < self.now_ps:
            raise ValueError(f"cannot go back in time: now is {self.now_ps} ps, until_ps is {until_ps}")
        if knobs is not self._in_force:
            for row in self._rows:
                value = getattr(knobs, row.name)
                self.knobs[0][row.name] = row.default if value is None else row.number(value)
            self._in_force = knobs
        self.advance(until_ps)

    @property
    def now_ps(self) -> int:
        return int(self.state.environment[0]["now_ps"])

    def request_records(self) -> Array:
        """Per-request progress (a copy), with the tokens that running requests have emitted so far."""
        progress = self.state.progress[0].copy()
        for r in range(self.deployment.max_num_replicas):
            n = int(self.state.replicas[0, r]["num_running"])
            batch = self.state.replicas[0, r]["batch"]
            q = batch["request"][:n]
            progress["emitted"][q] = batch["known"][:n] - self.state.requests[0]["prompt_tokens"][q]
        result: Array = progress
        return result
