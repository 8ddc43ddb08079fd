"""A vLLM server that runs our scheduler: knobs through its control folder, gauges from `/metrics`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import httpx
import numpy as np

from llmserve_env.backends.real.guard import checked_usage, fetch_text, quoted
from llmserve_env.backends.real.openai_provider import OpenAIProvider
from llmserve_env.backends.real.plugin.llmserve_steering.control import Status, Wanted, read_status, write_wanted
from llmserve_env.backends.real.prometheus import read_totals
from llmserve_env.backends.real.provider import Applied, Call, Gauges, Piece
from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.engine.knobs import KNOBS
from llmserve_env.errors import ConfigError, ProviderError

FIRST_TOKEN_ID = 10
"""Ids below are special to most tokenizers."""
REASONS = {
    "restart": "needs a restart of the server with other options; docs/real.md has its measured cost",
    "never": "vLLM has nothing like it",
}
"""Why a knob that a running server does not take is held."""


class VllmProvider(OpenAIProvider):
    """Applies every knob that the table calls `running`; the others are held."""

    name = "vllm"
    is_metered = False
    unsupported: Mapping[str, str] = MappingProxyType(
        {knob.name: REASONS[knob.live] for knob in KNOBS if knob.live in REASONS}
    )

    def __init__(self, settings: RealSettings) -> None:
        if settings.base_url is None or settings.control_dir is None:
            raise ConfigError(
                "provider vllm needs LLMSERVE_REAL_BASE_URL and LLMSERVE_REAL_CONTROL_DIR, "
                "as `llmserve real start` prints them"
            )
        super().__init__(settings)
        self.limiter = None
        self._folder = Path(settings.control_dir)
        self.metrics_url = settings.base_url.rstrip("/").removesuffix("/v1") + "/metrics"
        self._http = httpx.Client(timeout=settings.connect_timeout_s)
        self._by_priority = False
        self._generation = 0
        # A unique name keeps recordings of earlier episodes apart.
        self._record_to = f"iterations-{uuid4().hex[:8]}.jsonl" if settings.record_iterations else None
        self._vocabulary = 0

    def check(self) -> None:
        """The server answers, serves our model, and has our scheduler."""
        super().check()
        self._vocabulary = self.status().vocabulary

    def status(self) -> Status:
        """The status that our scheduler reports."""
        try:
            return read_status(self._folder)
        except (OSError, ValueError, KeyError) as error:
            raise ProviderError(
                f"no scheduler of ours writes to {self._folder}: start vLLM with `llmserve real start`, or with "
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

    def totals(self) -> Mapping[str, float]:
        """The server's own counters and gauges."""
        try:
            page = fetch_text(self._http, self.metrics_url, self.settings.connect_timeout_s)
        except httpx.HTTPError as error:
            raise ProviderError(f"{self.metrics_url} does not answer: {quoted(repr(error), self._key)}") from None
        return read_totals(page)

    def gauges(self) -> Gauges:
        found, status = self.totals(), self.status()
        try:
            occupancy = found["vllm:kv_cache_usage_perc"]
            waiting, running = found["vllm:num_requests_waiting"], found["vllm:num_requests_running"]
            preemptions = found["vllm:num_preemptions_total"]
        except KeyError as error:
            raise ProviderError(
                f"{self.metrics_url} lacks {error}: was this vLLM tried (llmserve_steering/versions.py)?"
            ) from error
        in_service = status.num_blocks - status.withheld_blocks
        # Withheld blocks look used to vLLM.
        used = max(occupancy * status.num_blocks - status.withheld_blocks, 0.0)
        return Gauges(
            queue_depth=int(waiting),
            active_requests=int(running),
            kv_cache_occupancy=min(used / max(in_service, 1), 1.0),
            preemptions=int(preemptions),
            drafted_tokens=int(found.get("vllm:spec_decode_num_draft_tokens_total", 0)),
            accepted_tokens=int(found.get("vllm:spec_decode_num_accepted_tokens_total", 0)),
            iterations=status.iterations,
            busy_s=status.busy_s,
            reserved_kv_fraction=in_service / status.num_blocks,
        )

    async def aclose(self) -> None:
        self._http.close()
        await super().aclose()

    async def _request(self, call: Call) -> Any:
        return await self._client.completions.create(
            model=self.settings.model,
            prompt=prompt_ids(call, self._vocabulary),
            max_tokens=call.output_tokens,
            temperature=0.0,
            stream=True,
            stream_options={"include_usage": True},
            extra_headers={"X-Request-Id": request_name(call)},
            extra_body={
                "ignore_eos": True,
                "priority": call.priority if self._by_priority else 0,
                # Accepted drafts arrive together: the running count tells how many there were.
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            },
        )

    def _pieces(self, chunk: Any, call: Call) -> list[Piece]:
        if not isinstance(getattr(chunk, "choices", None), list) or chunk.usage is None:
            raise ValueError("a chunk without choices or usage")
        return [Piece(len(chunk.choices), *checked_usage(chunk.usage, call.prompt_tokens, call.output_tokens))]


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
