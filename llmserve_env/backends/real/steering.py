"""Steering a vLLM through its control folder: status, knobs and recordings, whatever carries the requests.

Needs no HTTP library, so that an engine in process can be steered where none is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import numpy as np

from llmserve_env.backends.real.plugin.llmserve_steering.control import Status, Wanted, read_status, write_wanted
from llmserve_env.backends.real.provider import Applied, Call
from llmserve_env.engine.knobs import KNOBS
from llmserve_env.errors import ConfigError, ProviderError

FIRST_TOKEN_ID = 10
"""Ids below are special to most tokenizers."""
REASONS = {
    "restart": "needs a restart of the server with other options; docs/real.md has its measured cost",
    "never": "vLLM has nothing like it",
}
"""Why a knob that a running server does not take is held."""
UNSUPPORTED: Mapping[str, str] = MappingProxyType(
    {knob.name: REASONS[knob.live] for knob in KNOBS if knob.live in REASONS}
)


class Steering:
    """Applies every knob that the table calls `running`; the others are held."""

    unsupported: Mapping[str, str] = UNSUPPORTED

    def __init__(self, folder: Path, record_iterations: bool) -> None:
        self._folder = folder
        self._by_priority = False
        self._generation = 0
        # A unique name keeps recordings of earlier episodes apart.
        self._record_to = f"iterations-{uuid4().hex[:8]}.jsonl" if record_iterations else None
        self._vocabulary = 0

    def note_vocabulary(self) -> None:
        """Learn the size of the vocabulary; ProviderError if no steering scheduler writes to the folder."""
        self._vocabulary = self.status().vocabulary

    def status(self) -> Status:
        """The status that the steering scheduler reports."""
        try:
            return read_status(self._folder)
        except (OSError, ValueError, KeyError) as error:
            raise ProviderError(
                f"no steering scheduler writes to {self._folder}: start vLLM with `llmserve real start`, or with "
                "--scheduler-cls llmserve_steering.scheduler.SteeredScheduler and that folder in "
                f"LLMSERVE_REAL_CONTROL_DIR ({error})"
            ) from error

    def apply(self, knobs: Mapping[str, Any]) -> Applied:
        status, unsupported = self.status(), dict(self.unsupported)
        if status.max_speculation_depth == 0:
            unsupported["speculation_depth"] = "the server was started without n-gram speculation"
        self._by_priority = bool(knobs["priority_routing"])
        depth = min(int(knobs["speculation_depth"]), status.max_speculation_depth)
        wanted = self.steer(
            batch_cap=min(int(knobs["batch_cap"]), status.max_batch_cap),
            token_budget=min(int(knobs["token_budget"]), status.max_token_budget),
            kv_budget_fraction=float(knobs["kv_budget_fraction"]),
            speculation_depth=depth,
        )
        in_force = {
            "batch_cap": wanted.batch_cap,
            "kv_budget_fraction": wanted.kv_budget_fraction,
            "token_budget": wanted.token_budget,
            "priority_routing": self._by_priority,
        }
        return Applied(
            in_force if "speculation_depth" in unsupported else in_force | {"speculation_depth": depth}, unsupported
        )

    def steer(self, **wanted: Any) -> Wanted:
        """Write what is wanted; the scheduler obeys before its next iteration."""
        self._generation += 1
        order = Wanted(generation=self._generation, record_to=self._record_to, **wanted)
        write_wanted(self._folder, order)
        return order

    @property
    def iterations_path(self) -> Path:
        """Where the scheduler records its iterations, when it is told to."""
        if self._record_to is None:
            raise ConfigError("nothing is recorded: set LLMSERVE_REAL_RECORD_ITERATIONS=true")
        return self._folder / self._record_to


def request_name(call: Call) -> str:
    """The name of the request in the engine's records."""
    return f"llmserve-{call.seed}-{call.index}"


def prompt_ids(call: Call, vocabulary: int) -> list[int]:
    """Random tokens, exactly as many as the request has; shared where the prefix is shared."""
    shared = min(call.prefix_tokens, call.prompt_tokens) if call.prefix_id >= 0 else 0
    ids: list[int] = []
    for key, size in (
        ((call.seed, 1, call.prefix_id + 1), shared),
        ((call.seed, 0, call.index), call.prompt_tokens - shared),
    ):
        ids.extend(np.random.default_rng(key).integers(FIRST_TOKEN_ID, vocabulary, size=size).tolist())
    return ids
