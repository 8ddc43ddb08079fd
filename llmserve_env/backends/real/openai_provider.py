"""Any OpenAI-compatible API, through the official client: chat requests, streamed and timed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import Any

import httpx2
import numpy as np
import openai

from llmserve_env.backends.real.guard import (
    MAX_LIST_BYTES,
    AnswerTooLargeError,
    LimitedTransport,
    UsageError,
    checked_usage,
    quoted,
)
from llmserve_env.backends.real.limiter import Limiter
from llmserve_env.backends.real.provider import Applied, Call, Gauges, ImplausibleAnswerError, Piece, StreamError
from llmserve_env.backends.real.settings import KEY_VARIABLE, RealSettings
from llmserve_env.engine.knobs import NAMES
from llmserve_env.errors import ProviderError

WORDS = (
    "time",
    "people",
    "way",
    "water",
    "day",
    "part",
    "sound",
    "work",
    "place",
    "year",
    "back",
    "name",
    "line",
    "end",
)
"""Common words, which most tokenizers encode as one token each."""
CHAT_TOKENS = 8
"""Roughly what a chat template adds to a message; the bill uses the API's own count."""
KEPT_BY_US = ("batch_cap", "priority_routing")
"""Knobs that the client implements by itself."""
FATAL = (openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError)


def reason_of(error: Exception) -> str:
    """The few words under which a failure is counted."""
    match error:
        case openai.RateLimitError():
            return "rate limited (429)"
        case openai.APIStatusError():
            return f"status {error.status_code}"
        case openai.APITimeoutError() | TimeoutError():
            return "timed out"
        case AnswerTooLargeError():
            return "answer too large"
        case openai.APIConnectionError():
            return reason_of(error.__cause__) if isinstance(error.__cause__, AnswerTooLargeError) else "no connection"
        case openai.APIError():
            return "error in the stream"
        case UsageError():
            return "impossible usage"
        case ValueError():
            return "stream is not JSON"
        case httpx2.TimeoutException():
            return "stalled"
        case _:
            return "stream broke off"


class OpenAIProvider:
    """Changes the batch cap (requests in flight) and the order of waiting requests; an API offers no other knob."""

    name = "openai"
    is_metered = True
    unsupported: Mapping[str, str] = MappingProxyType(
        {name: "the API does not offer it" for name in NAMES if name not in KEPT_BY_US}
    )

    def __init__(self, settings: RealSettings) -> None:
        self.settings = settings
        self.limiter: Limiter | None = Limiter(1)
        self.refusals: Counter[int] = Counter()
        """HTTP statuses from 400 up, retried ones included."""
        self._key = settings.api_key()
        self._client = self._connect(settings.max_answer_bytes, settings.max_retries)

    def _connect(self, limit_bytes: int, max_retries: int) -> openai.AsyncOpenAI:
        settings = self.settings
        timeout = openai.Timeout(settings.stall_timeout_s, connect=settings.connect_timeout_s)
        http = openai.DefaultAsyncHttpxClient(
            timeout=timeout, transport=LimitedTransport(limit_bytes), event_hooks={"response": [self._count]}
        )
        return openai.AsyncOpenAI(
            api_key=self._key, base_url=settings.base_url, timeout=timeout, max_retries=max_retries, http_client=http
        )

    async def _count(self, response: Any) -> None:
        if response.status_code >= 400:
            self.refusals[response.status_code] += 1

    def check(self) -> None:
        """Ask for the list of models: the cheapest question that needs a living server and a valid key."""
        where, limit_s = self.settings.base_url or "the default base URL", self.settings.connect_timeout_s
        try:
            names = asyncio.run(self._model_names(limit_s))
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            raise ProviderError(f"{where} refuses the key in {KEY_VARIABLE}: {self._said(error)}") from None
        except (openai.APIConnectionError, TimeoutError) as error:
            raise ProviderError(
                f"{where} does not answer within {limit_s:g} s ({reason_of(error)}): "
                "start the server or correct LLMSERVE_REAL_BASE_URL"
            ) from None
        except (openai.OpenAIError, ValueError, TypeError, AttributeError) as error:
            raise ProviderError(f"{where} does not speak OpenAI's protocol: {self._said(error)}") from None
        if self.settings.model not in names:
            served = self._said(", ".join(names[:10])) or "nothing"
            raise ProviderError(
                f"{where} does not serve {self.settings.model!r}, but {served}: set LLMSERVE_REAL_MODEL"
            )

    async def _model_names(self, limit_s: float) -> list[str]:
        """One page of the list; an endpoint could name next pages forever."""
        async with asyncio.timeout(limit_s), self._connect(MAX_LIST_BYTES, 0) as client:
            page = await client.models.list()
        return [str(model.id) for model in page.data]

    def _said(self, words: object) -> str:
        return quoted(words, self._key)

    def apply(self, knobs: Mapping[str, Any]) -> Applied:
        assert self.limiter is not None
        in_force = {name: knobs[name] for name in KEPT_BY_US}
        in_force["batch_cap"] = min(int(knobs["batch_cap"]), self.settings.max_in_flight)
        self.limiter.configure(in_force["batch_cap"], bool(in_force["priority_routing"]))
        return Applied(in_force, dict(self.unsupported))

    def gauges(self) -> Gauges:
        assert self.limiter is not None
        return Gauges(queue_depth=self.limiter.num_waiting, active_requests=self.limiter.num_running)

    async def stream(self, call: Call) -> AsyncIterator[Piece]:
        try:
            async with asyncio.timeout(self.settings.request_timeout_s):
                stream = await self._request(call)
                async for chunk in stream:
                    for piece in self._pieces(chunk, call):
                        yield piece
        except FATAL as error:
            # The chain of errors is cut, because tracebacks print what the endpoint said.
            raise ProviderError(f"the API refuses to serve us: {self._said(error)}") from None
        except UsageError as error:
            raise ImplausibleAnswerError(reason_of(error)) from error
        except (openai.OpenAIError, httpx2.HTTPError, TimeoutError, ValueError) as error:
            # Once a stream has begun, the client passes on the errors of its HTTP library.
            raise StreamError(reason_of(error)) from error

    async def _request(self, call: Call) -> Any:
        return await self._client.chat.completions.create(
            model=self.settings.model,
            messages=[{"role": "user", "content": prompt_text(call)}],
            max_completion_tokens=call.output_tokens,
            stream=True,
            stream_options={"include_usage": True},
        )

    def _pieces(self, chunk: Any, call: Call) -> list[Piece]:
        choices = getattr(chunk, "choices", None)
        if not isinstance(choices, list):
            raise ValueError("a chunk without choices")
        pieces = [Piece(1) for choice in choices if choice.delta is not None and choice.delta.content]
        if chunk.usage is not None:
            pieces.append(Piece(0, *checked_usage(chunk.usage, call.prompt_tokens, call.output_tokens)))
        return pieces

    async def aclose(self) -> None:
        await self._client.close()


def prompt_text(call: Call) -> str:
    """Words for the request's tokens, the same for the same prefix, different otherwise."""
    count = max(call.prompt_tokens - CHAT_TOKENS, 1)
    shared = min(call.prefix_tokens, count) if call.prefix_id >= 0 else 0
    parts = []
    for key, size in (((call.seed, 1, call.prefix_id + 1), shared), ((call.seed, 0, call.index), count - shared)):
        parts.extend(np.random.default_rng(key).choice(WORDS, size=size).tolist())
    return " ".join(parts)
