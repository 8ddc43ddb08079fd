"""Sizes of the timed models, read from the library's table without importing it: only PyTorch and Triton are needed."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path

TABLE = Path(__file__).parents[2] / "llmserve_env" / "profiles" / "architectures.json"


@dataclass(frozen=True)
class Architecture:
    """A Llama-style decoder: grouped-query attention, SwiGLU, no biases."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    tied_embeddings: bool

    @property
    def linears(self) -> tuple[tuple[int, int], ...]:
        """(output, input) sizes of a layer's matrix products: QKV, output, gate and up, down."""
        qkv = (self.heads + 2 * self.kv_heads) * self.head_dim
        attended = self.heads * self.head_dim
        return ((qkv, self.hidden), (self.hidden, attended), (2 * self.ffn, self.hidden), (self.hidden, self.ffn))


_ROWS = json.loads(TABLE.read_text(encoding="utf-8"))
ARCHITECTURES = {row["name"]: Architecture(**{f.name: row[f.name] for f in fields(Architecture)}) for row in _ROWS}
DRAFT_OF = {row["name"]: ARCHITECTURES[row["draft"]] for row in _ROWS if row["draft"]}
