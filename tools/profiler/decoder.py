"""A Llama-style decoder with random weights, in several quantization tiers: one call of `run` is one iteration."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn.functional import linear

from tools.profiler import attention, fused
from tools.profiler.architectures import Architecture
from tools.profiler.grid import Point
from tools.profiler.schemes import SCHEMES
from tools.profiler.timing import fastest

TOKEN_BUCKETS = (1, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 640, 768, 1024, 1280, 1536, 2048, 3072, 4096, 8192)
PROBED_LAYERS = 8
"""Kernel choices are timed over this many layers in turn, whose weights and caches exceed the L2 cache."""


@dataclass(frozen=True)
class Chunk:
    """`count` prompts of which `tokens` are computed after `past`; their keys and values start at `slot`."""

    count: int
    tokens: int
    past: int
    slot: int


@dataclass(frozen=True)
class Batch:
    """One iteration's inputs on the device."""

    point: Point
    ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    sampled: torch.Tensor
    chunks: tuple[Chunk, ...]


class Decoder:
    """Weights, KV cache and the forward pass."""

    def __init__(
        self, architecture: Architecture, cache_tokens: int, tiers: tuple[str, ...], greedy: bool = False
    ) -> None:
        a = self.architecture = architecture
        self.greedy = greedy
        self.cache_tokens = cache_tokens
        shape = (a.layers, cache_tokens, a.kv_heads, a.head_dim)
        self.keys, self.values = _random(*shape, std=1.0), _random(*shape, std=1.0)
        self.embedding = _random(a.vocabulary, a.hidden)
        self.head = self.embedding if a.tied_embeddings else _random(a.vocabulary, a.hidden)
        self.norms = torch.ones(2 * a.layers + 1, a.hidden, dtype=torch.bfloat16, device="cuda")
        self.weights: dict[str, list[list[Any]]] = {tier: [] for tier in tiers}
        scratch = torch.empty(max(n * k for n, k in a.linears), dtype=torch.bfloat16, device="cuda")
        for _ in range(a.layers):
            plain = [_random(n, k) for n, k in a.linears]
            for tier in tiers:
                self.weights[tier].append([SCHEMES[tier].weight(w, scratch) for w in plain])
        self.gemms: dict[tuple[str, int, int], Any] = {}
        self.gemm_times: dict[str, dict[str, float]] = {}
        self.attention_chosen: dict[tuple[Any, ...], str] = {}
        self.attention_times: dict[str, dict[str, float]] = {}

    def batch(self, point: Point) -> Batch:
        """Place an iteration's sequences in the cache and make its index tensors."""
        positions: list[torch.Tensor] = []
        slots: list[torch.Tensor] = []
        sampled: list[torch.Tensor] = []
        sequences, context, query = point.sequences, point.context, point.query_tokens
        if sequences:
            starts = torch.arange(sequences)[:, None] * context
            at = torch.arange(context - query, context)[None, :]
            slots.append((starts + at).flatten())
            positions.append(at.expand(sequences, query).flatten())
            sampled.append(torch.arange(sequences * query))
        used, row, chunks = sequences * context, sequences * query, []
        for count, tokens, past in _runs(point.prefill):
            chunks.append(Chunk(count, tokens, past, used))
            at = torch.arange(past, past + tokens)
            for i in range(count):
                slots.append(used + i * (past + tokens) + at)
                positions.append(at)
                sampled.append(torch.tensor([row + (i + 1) * tokens - 1]))
            used += count * (past + tokens)
            row += count * tokens
        if used > self.cache_tokens:
            raise ValueError(f"{point} needs {used} cache tokens; the cache has {self.cache_tokens}")
        ids = torch.randint(self.architecture.vocabulary, (row,), device="cuda")
        at, to, kept = (torch.cat(part).cuda() for part in (positions, slots, sampled))
        return Batch(point, ids, at, to, kept, tuple(chunks))

    def run(self, tier: str, batch: Batch) -> torch.Tensor:
        """One iteration: every layer, the LM head for the sampled rows, sampling."""
        x = self.embedding[batch.ids]
        residual = torch.zeros_like(x)
        bucket = _bucket(len(batch.ids))
        gemms = [self.gemms[tier, i, bucket] for i in range(4)]
        for layer, weights in enumerate(self.weights[tier]):
            x = self._layer(tier, layer, weights, gemms, x, residual, batch)
        x, residual = x[batch.sampled], residual[batch.sampled]
        normed = fused.add_norm(x, residual, self.norms[-1])
        logits = linear(normed, self.head)
        return logits.argmax(dim=1) if self.greedy else sample(logits)

    def _layer(
        self,
        tier: str,
        layer: int,
        weights: list[Any],
        gemms: list[Any],
        x: torch.Tensor,
        residual: torch.Tensor,
        batch: Batch,
    ) -> torch.Tensor:
        dtype = SCHEMES[tier].activations
        norm: Any = fused.add_norm if dtype is None else partial(fused.add_norm_quantize, dtype=dtype)
        qkv = gemms[0](norm(x, residual, self.norms[2 * layer]), weights[0])
        keys, values = self.keys[layer], self.values[layer]
        a = self.architecture
        fused.rotate(qkv, batch.positions, a.heads, a.kv_heads, a.head_dim)
        fused.write_cache(qkv, batch.slots, keys, values, a.heads)
        attended = self._attend(qkv, keys, values, batch)
        x = gemms[1](attended if dtype is None else fused.quantize(attended, dtype), weights[1])
        gate_up = gemms[2](norm(x, residual, self.norms[2 * layer + 1]), weights[2])
        return gemms[3](fused.swiglu(gate_up) if dtype is None else fused.swiglu_quantize(gate_up, dtype), weights[3])

    def _attend(self, qkv: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, batch: Batch) -> torch.Tensor:
        parts = []
        sequences, query = batch.point.sequences, batch.point.query_tokens
        if sequences:
            parts.append(self._decode(self.attention_chosen[_decode_key(batch.point)], qkv, keys, values, batch.point))
        row = sequences * query
        for chunk in batch.chunks:
            parts.append(self._prefill(qkv, keys, values, chunk, row))
            row += chunk.count * chunk.tokens
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _decode(
        self, kernel: str, qkv: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, point: Point
    ) -> torch.Tensor:
        a, n = self.architecture, point.sequences
        q = qkv[: n * point.query_tokens, : a.heads * a.head_dim]
        q = q.unflatten(1, (a.heads, a.head_dim)).unflatten(0, (n, point.query_tokens))
        k, v = _cached(keys, values, 0, n, point.context)
        return attention.decode_one(q, k, v) if point.query_tokens == 1 else attention.VERIFY[kernel](q, k, v)

    def _prefill(
        self, qkv: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, chunk: Chunk, row: int
    ) -> torch.Tensor:
        a = self.architecture
        q = qkv[row : row + chunk.count * chunk.tokens, : a.heads * a.head_dim]
        q = q.unflatten(1, (a.heads, a.head_dim)).unflatten(0, (chunk.count, chunk.tokens)).transpose(1, 2)
        k, v = _cached(keys, values, chunk.slot, chunk.count, chunk.past + chunk.tokens)
        return attention.prefill(q, k, v, chunk.past)

    def prepare(self, tier: str, batch: Batch) -> None:
        """Choose the kernels of this iteration that are not chosen yet."""
        self._choose_gemms(tier, len(batch.ids))
        if batch.point.sequences:
            self._choose_attention(batch)

    def _choose_attention(self, batch: Batch) -> None:
        key = _decode_key(batch.point)
        if key in self.attention_chosen:
            return
        if batch.point.query_tokens == 1:
            self.attention_chosen[key] = "cudnn"
            return
        qkv = _random(len(batch.ids), self.architecture.linears[0][0], std=1.0)

        def probe(kernel: str) -> None:
            for layer in range(PROBED_LAYERS):
                self._decode(kernel, qkv, self.keys[layer], self.values[layer], batch.point)

        self.attention_chosen[key], times = fastest({name: name for name in attention.VERIFY}, probe)
        self.attention_times[" ".join(map(str, key))] = times

    def _choose_gemms(self, tier: str, tokens: int) -> None:
        bucket = _bucket(tokens)
        for i, (outputs, inputs) in enumerate(self.architecture.linears):
            if (tier, i, bucket) in self.gemms:
                continue
            candidates, dtype = SCHEMES[tier].candidates(bucket), SCHEMES[tier].activations
            if len(candidates) == 1:
                self.gemms[tier, i, bucket] = next(iter(candidates.values()))
                continue
            x = _random(bucket, inputs, std=1.0)
            operand = x if dtype is None else fused.quantize(x, dtype)

            def probe(gemm: Any, i: int = i, operand: Any = operand) -> None:
                for layer in self.weights[tier][:PROBED_LAYERS]:
                    gemm(operand, layer[i])

            name, times = fastest(candidates, probe)
            self.gemms[tier, i, bucket] = candidates[name]
            self.gemm_times[f"{tier} {outputs}x{inputs} at {bucket}"] = {**times, "chosen": name}  # type: ignore[dict-item]


def sample(logits: torch.Tensor) -> torch.Tensor:
    """Draw from the softmax in 32 bits by an exponential race, as vLLM does: no synchronisation with the host."""
    probabilities = torch.softmax(logits.float(), dim=1)
    return probabilities.div_(torch.empty_like(probabilities).exponential_()).argmax(dim=1)


def _random(*shape: int, std: float = 0.02) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_(0.0, std)


def _bucket(tokens: int) -> int:
    return next((b for b in TOKEN_BUCKETS if tokens <= b), TOKEN_BUCKETS[-1])


def _cached(
    keys: torch.Tensor, values: torch.Tensor, slot: int, count: int, length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    used = slice(slot, slot + count * length)
    k, v = (cache[used].unflatten(0, (count, length)).transpose(1, 2) for cache in (keys, values))
    return k, v


def _decode_key(point: Point) -> tuple[Any, ...]:
    return "decode", point.sequences, point.query_tokens, point.context


def _runs(chunks: tuple[tuple[int, int], ...]) -> list[tuple[int, int, int]]:
    """Group equal neighbouring chunks as (count, tokens, past)."""
    runs: list[tuple[int, int, int]] = []
    for tokens, past in chunks:
        if runs and runs[-1][1:] == (tokens, past):
            runs[-1] = (runs[-1][0] + 1, tokens, past)
        else:
            runs.append((1, tokens, past))
    return runs
