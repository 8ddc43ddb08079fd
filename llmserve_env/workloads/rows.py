"""Requests of one source, before they are merged with the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.workloads.distributions import output_tokens, tokens
from llmserve_env.workloads.spec import RequestKind
from llmserve_env.workloads.streams import OUTPUT_TOKENS, PROMPT_TOKENS, SourceStreams


@dataclass(frozen=True, slots=True)
class Rows:
    """One row per request; kinds, prefixes and sessions are numbered within the source, with -1 for none."""

    arrival_s: Array
    kind: Array
    prompt_tokens: Array
    output_tokens: Array
    prefix_id: Array
    session_id: Array

    def take(self, which: Array) -> Rows:
        """The rows of a mask or an index array."""
        return Rows(*(getattr(self, field.name)[which] for field in fields(self)))

    def numbered_from(self, kind: int, prefix: int, session: int) -> Rows:
        """The same rows, numbered after those of earlier sources."""
        if kind == prefix == session == 0:
            return self
        return replace(
            self,
            kind=self.kind + kind,
            prefix_id=_shifted(self.prefix_id, prefix),
            session_id=_shifted(self.session_id, session),
        )


def single_requests(
    kinds: Sequence[RequestKind], kind: Array, arrival_s: Array, max_total_tokens: int, streams: SourceStreams
) -> Rows:
    """Independent requests, without sessions or shared prefixes."""
    n = len(kind)
    prompt = prompts(kinds, kind, streams.generator(PROMPT_TOKENS).random(n))
    output = outputs(kinds, kind, streams.generator(OUTPUT_TOKENS).random(n), prompt)
    none = np.full(n, -1)
    return Rows(arrival_s, kind, prompt, np.minimum(output, max_total_tokens - prompt), none, none)


def prompts(kinds: Sequence[RequestKind], kind: Array, u: Array) -> Array:
    """Prompt lengths at the uniform numbers `u`, each by its kind."""
    if len(kinds) == 1:
        return tokens(kinds[0].prompt_tokens, u)
    result = np.empty(len(kind), dtype=np.int64)
    for i, shape in enumerate(kinds):
        rows = np.flatnonzero(kind == i)
        result[rows] = tokens(shape.prompt_tokens, u[rows])
    return result


def outputs(kinds: Sequence[RequestKind], kind: Array, u: Array, prompt: Array) -> Array:
    """Output lengths at the uniform numbers `u`, each by its kind and prompt."""
    if len(kinds) == 1:
        return output_tokens(kinds[0].output_tokens, u, prompt)
    result = np.empty(len(kind), dtype=np.int64)
    for i, shape in enumerate(kinds):
        rows = np.flatnonzero(kind == i)
        result[rows] = output_tokens(shape.output_tokens, u[rows], prompt[rows])
    return result


def _shifted(ids: Array, by: int) -> Array:
    return np.where(ids >= 0, ids + by, -1) if by else ids
