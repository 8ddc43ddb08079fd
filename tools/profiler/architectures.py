"""Sizes of the timed models, repeated from the library so that only PyTorch is needed; a test keeps them equal."""

from __future__ import annotations

from dataclasses import dataclass


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


LLAMA_3_8B = Architecture("llama-3-8b", 4096, 32, 32, 8, 128, 14336, 128256, tied_embeddings=False)
LLAMA_3_2_1B = Architecture("llama-3.2-1b", 2048, 16, 32, 8, 64, 8192, 128256, tied_embeddings=True)
ARCHITECTURES = {a.name: a for a in (LLAMA_3_8B, LLAMA_3_2_1B)}
DRAFT_OF = {"llama-3-8b": LLAMA_3_2_1B}
