"""Iterations as JSON: what `llmserve profile predict` reads."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from llmserve_env.errors import ProfileError


class Batch(BaseModel):
    """One iteration: decoding groups [sequences, context] and prompt chunks [tokens, past]."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decode: tuple[tuple[int, int], ...] = ()
    prefill: tuple[tuple[int, int], ...] = ()

    @property
    def num_sequences(self) -> int:
        """Sequences in the iteration."""
        return sum(n for n, _ in self.decode) + len(self.prefill)

    @property
    def num_admissions(self) -> int:
        """Requests that the iteration admits: their prompts have no past."""
        return sum(past == 0 for _, past in self.prefill)

    def num_tokens(self, depth: int = 0) -> int:
        """Tokens in the iteration, with `depth` drafts per decoding sequence."""
        return sum(n * (1 + depth) for n, _ in self.decode) + sum(n for n, _ in self.prefill)

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
