"""A vLLM server that runs our scheduler: knobs through its control folder, gauges from `/metrics`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from llmserve_env.backends.real.guard import checked_usage, fetch_text, quoted
from llmserve_env.backends.real.openai_provider import OpenAIProvider
from llmserve_env.backends.real.prometheus import read_totals
from llmserve_env.backends.real.provider import Call, Gauges, Piece
from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.backends.real.steering import Steering, prompt_ids, request_name
from llmserve_env.errors import ConfigError, ProviderError


class VllmProvider(Steering, OpenAIProvider):
    """Requests over HTTP, knobs through the control folder."""

    name = "vllm"
    is_metered = False

    def __init__(self, settings: RealSettings) -> None:
        if settings.base_url is None or settings.control_dir is None:
            raise ConfigError(
                "provider vllm needs LLMSERVE_REAL_BASE_URL and LLMSERVE_REAL_CONTROL_DIR, "
                "as `llmserve real start` prints them"
            )
        OpenAIProvider.__init__(self, settings)
        Steering.__init__(self, Path(settings.control_dir), settings.record_iterations)
        self.limiter = None
        self.metrics_url = settings.base_url.rstrip("/").removesuffix("/v1") + "/metrics"
        self._http = httpx.Client(timeout=settings.connect_timeout_s)

    def check(self) -> None:
        """The server answers, serves our model, and has our scheduler."""
        OpenAIProvider.check(self)
        self.note_vocabulary()

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
