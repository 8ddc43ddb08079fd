"""Iterations as JSON: what `llmserve profile predict` reads."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from llmserve_env.errors import ProfileError


class Batch(BaseModel):
    """One iteration: decoding groups [sequences, context] and prompt chunks [tokens, past]."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decode: tuple[tuple[int, int], ...] = ()
    prefill: tuple[tuple[int, int], ...] = ()

    def describe(self) -> str:
        """The iteration in words."""
        parts = [f"decode {n} x {context}" for n, context in self.decode]
        parts += [f"prefill {n} after {past}" for n, past in self.prefill]
        return ", ".join(parts)


_BATCHES = TypeAdapter(list[Batch])


def parse_batches(text: str) -> list[Batch]:
    """Parse a JSON list of iterations."""
    try:
        return _BATCHES.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ProfileError(
            'batches must be a JSON list of {"decode": [[sequences, context], ...], "prefill": [[chunk, past], ...]}; '
            f"at {where or 'the start'}: {first['msg']}"
        ) from error
