"""Observations for the laws. This is the only file here that knows the memory layout of the engine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from llmserve_env.engine.engine import Engine
from llmserve_env.engine.log_layout import LOG_EMISSION, LOG_ITEM, LOG_ITERATION
from llmserve_env.engine.state import MUTABLE_FIELDS
from tests.engine.random_cases import Case

JIT_IS_OFF = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")

seeds = st.integers(0, 2**32 - 1)
law = settings(max_examples=3 if JIT_IS_OFF else 150)
"""A case takes half a second in plain Python and a millisecond when compiled."""


def engine_of(case: Case, **options: Any) -> Engine:
    """A fresh engine for a case."""
    return Engine(case.deployment, case.requests, case.seed, **options)


def windows_of(engine: Engine, case: Case) -> Iterator[int]:
    """Serve a case window by window; yields the number of each window that has ended."""
    for number, (until_ps, knobs) in enumerate(case.windows):
        engine.serve(knobs, until_ps)
        yield number


def serve_case(case: Case, **options: Any) -> Engine:
    """A case served to its end."""
    engine = engine_of(case, **options)
    for _ in windows_of(engine, case):
        pass
    return engine


def counted(engine: Engine, name: str) -> int:
    """A counter of the window that has just ended."""
    return int(engine.state.window[0][name])


def running_ids(engine: Engine) -> list[list[int]]:
    """Running requests of each replica, in admission order."""
    return [r["batch"]["request"][: r["num_running"]].tolist() for r in engine.state.replicas[0]]


def waiting_ids(engine: Engine) -> list[list[int]]:
    """Waiting requests of each replica, class by class."""
    links = engine.state.progress[0]["next"]
    return [[q for head in r["head"].tolist() for q in _chain(head, links)] for r in engine.state.replicas[0]]


def transferring_ids(engine: Engine) -> list[int]:
    """Requests between a prefill replica and a base replica."""
    return list(_chain(int(engine.state.environment[0]["handoff_head"]), engine.state.progress[0]["next"]))


def _chain(head: int, links: NDArray[np.int32]) -> Iterator[int]:
    while head >= 0:
        yield head
        head = int(links[head])


@dataclass(frozen=True, slots=True)
class Pool:
    """The KV blocks of one replica."""

    num_blocks: int
    used_blocks: int
    held_blocks: list[int]
    """Blocks of each running request."""
    holders_of_block: dict[int, int]
    """Running requests that hold each block which others may find; empty without a prefix cache."""
    references: dict[int, int]
    """Reference counts as the pool keeps them."""
    own_blocks: int
    """Blocks of running requests that nobody else can hold."""
    free_blocks: int
    """Blocks in the free lists; if blocks are only counted, the unused ones."""
    is_stale: bool
    """Whether a knob has changed the size and no iteration has been scheduled since."""


def pools(engine: Engine) -> list[Pool]:
    """The KV pool of each replica."""
    return [_pool(engine, r) for r in range(engine.deployment.max_num_replicas)]


def _pool(engine: Engine, r: int) -> Pool:
    replica = engine.state.replicas[0, r]
    batch = replica["batch"]
    held = batch["held_blocks"][: replica["num_running"]].tolist()
    num_blocks, used = int(replica["num_blocks"]), int(replica["used_blocks"])
    free = num_blocks - used
    holders: dict[int, int] = {}
    references: dict[int, int] = {}
    own = sum(held)
    if engine.deployment.prefix_caching:
        entries = engine.state.entries[0, r]
        shared = np.minimum(batch["keyed_blocks"], batch["shared_blocks"])[: replica["num_running"]].tolist()
        own -= sum(shared)
        for slot, count in enumerate(shared):
            for entry in engine.state.block_table[0, r, batch["table_row"][slot], :count].tolist():
                holders[entry] = holders.get(entry, 0) + 1
        references = {entry: int(entries[entry]["references"]) for entry in holders}
        lru = _chain(int(replica["lru_head"]), entries["newer"])
        free = int(replica["num_keyless"]) + sum(int(entries[entry]["num_blocks"]) for entry in lru)
    return Pool(num_blocks, used, held, holders, references, own, free, bool(replica["pool_is_stale"]))


@dataclass(frozen=True, slots=True)
class Log:
    """Everything that happened, as arrays in chronological order."""

    steps: NDArray[np.int64]
    """[iteration, (replica, scheduled at, start, end)]"""
    items: NDArray[np.int64]
    """[item, (replica, request, tokens, computed before, drafts)]"""
    tokens: NDArray[np.int64]
    """[emission, (replica, request, tokens, time)]"""


def serve_logged(case: Case) -> Engine:
    """A case served to its end with a log of everything."""
    engine = serve_case(case, log_rows=50_000)
    num_rows = int(engine.state.environment[0]["log_count"])
    return engine if num_rows <= len(engine.state.log) else serve_case(case, log_rows=num_rows)


def log_of(engine: Engine) -> Log:
    """The log of an engine from `serve_logged`."""
    rows = engine.state.log[: int(engine.state.environment[0]["log_count"])]

    def columns(kind: int, *names: str) -> NDArray[np.int64]:
        chosen = rows[rows["kind"] == kind]
        return np.column_stack([chosen[name] for name in names])

    return Log(
        columns(LOG_ITERATION, "replica", "at_ps", "started_at_ps", "ended_at_ps"),
        columns(LOG_ITEM, "replica", "request", "tokens", "computed_before", "drafts"),
        columns(LOG_EMISSION, "replica", "request", "tokens", "at_ps"),
    )


def emissions(engine: Engine) -> Iterator[tuple[int, int, int]]:
    """(request, tokens, drafts judged) of each emission, in order; of an engine that schedules synchronously."""
    drafts: dict[int, int] = {}
    for row in engine.state.log[: int(engine.state.environment[0]["log_count"])]:
        request = int(row["request"])
        if row["kind"] == LOG_ITEM:
            drafts[request] = int(row["drafts"])
        elif row["kind"] == LOG_EMISSION:
            yield request, int(row["tokens"]), drafts[request]


def digest(engine: Engine) -> str:
    """A digest of all mutable state."""
    return hashlib.sha256(b"".join(getattr(engine.state, name).tobytes() for name in MUTABLE_FIELDS)).hexdigest()


def is_executing(engine: Engine, r: int) -> bool:
    """Whether an iteration is under way on a replica."""
    return int(engine.state.replicas[0, r]["end_at_ps"]) >= 0


def visible(engine: Engine) -> dict[str, Any]:
    """All state except the counters of single windows."""
    records = engine.request_records()
    replicas = engine.state.replicas[0]
    return {
        "requests": {
            n: records[n].tolist() for n in ("status", "first_token_at_ps", "finished_at_ps", "emitted", "preemptions")
        },
        "running": running_ids(engine),
        "waiting": waiting_ids(engine),
        "transferring": transferring_ids(engine),
        "pools": [
            # The numbers of the cache's entries mean nothing by themselves.
            replace(pool, holders_of_block={}, references=dict(enumerate(sorted(pool.references.values()))))
            for pool in pools(engine)
        ],
        "replicas": {n: replicas[n].tolist() for n in ("tier", "in_service", "available_at_ps", "end_at_ps")},
        "now_ps": engine.now_ps,
    }
