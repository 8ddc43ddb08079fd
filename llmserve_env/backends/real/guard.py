"""Limits on what an endpoint may send, and on which of its words reach this package's clients.

An endpoint may be hostile or broken: answers that never end, answers that drip, counts that make no sense, and error
texts that repeat the key they were asked with.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import httpx2

MAX_QUOTE = 300
"""Characters of an endpoint's words that an error repeats."""
MAX_LIST_BYTES = 4_000_000
"""The largest list of models or page of metrics that is read."""
PROMPT_SLACK_TOKENS = 1_024
"""Tokens that a chat template may add to a prompt."""
TOKENIZER_FACTOR = 8
"""A tokenizer may need this many tokens for what we count as one."""
_SECRETS = re.compile(r"(?i)(bearer\s+|\bsk-|\bhf_)[\w.\-*]{4,}")


class AnswerTooLargeError(httpx2.TransportError):
    """An answer was longer than allowed, or compressed, so that its length cannot be known."""


def quoted(words: object, *secrets: str) -> str:
    """What an endpoint said, for an error message: short, on one line, and without keys."""
    text = " ".join(str(words).split())
    for secret in secrets:
        if secret:
            text = text.replace(secret, "[key]")
    text = _SECRETS.sub("[key]", text)
    return text if len(text) <= MAX_QUOTE else text[:MAX_QUOTE] + "…"


class _LimitedStream(httpx2.AsyncByteStream):
    """The body of an answer, up to a number of bytes."""

    def __init__(self, body: Any, limit_bytes: int) -> None:
        self._body, self._parts = body, aiter(body)
        self._left_bytes, self._limit_bytes = limit_bytes, limit_bytes

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        part: bytes = await anext(self._parts)
        self._left_bytes -= len(part)
        if self._left_bytes < 0:
            raise AnswerTooLargeError(f"the answer is longer than {self._limit_bytes} bytes")
        return part

    async def aclose(self) -> None:
        await self._body.aclose()


class LimitedTransport(httpx2.AsyncHTTPTransport):
    """HTTP in which no answer may exceed a number of bytes."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__()
        self._limit_bytes = limit_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        # A compressed answer may expand to a thousand times its length.
        request.headers["accept-encoding"] = "identity"
        answer = await super().handle_async_request(request)
        if answer.headers.get("content-encoding", "identity") != "identity":
            await answer.aclose()
            raise AnswerTooLargeError("the answer is compressed, although it was requested uncompressed")
        answer.stream = _LimitedStream(answer.stream, self._limit_bytes)
        return answer


def fetch_text(client: httpx.Client, url: str, total_s: float) -> str:
    """GET a page of at most `MAX_LIST_BYTES` within `total_s`; httpx.HTTPError otherwise."""
    ends_at_s = time.monotonic() + total_s
    parts, size = [], 0
    with client.stream("GET", url, headers={"accept-encoding": "identity"}) as answer:
        answer.raise_for_status()
        for part in answer.iter_raw():
            size += len(part)
            if size > MAX_LIST_BYTES:
                raise httpx.ReadError(f"the answer is longer than {MAX_LIST_BYTES} bytes")
            if time.monotonic() > ends_at_s:
                raise httpx.ReadTimeout(f"the answer took longer than {total_s:g} s")
            parts.append(part)
    return b"".join(parts).decode("utf-8", "replace")


def checked_usage(usage: Any, prompt_tokens: int, output_tokens: int) -> tuple[int, int]:
    """(prompt, completion) tokens that an endpoint bills for a request; ValueError for counts that cannot be true."""
    found = (usage.prompt_tokens, usage.completion_tokens)
    limits = (TOKENIZER_FACTOR * prompt_tokens + PROMPT_SLACK_TOKENS, output_tokens)
    for name, count, limit in zip(("prompt", "completion"), found, limits, strict=True):
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= limit:
            raise UsageError(f"impossible usage: {quoted(count)[:40]} {name} tokens, at most {limit} are possible")
    return found


class UsageError(ValueError):
    """An endpoint bills tokens that a request cannot have used."""
