"""The small kernels of a decoder layer, fused as in serving engines."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

EPSILON = 1e-5
ROPE_LOG2_THETA = 18.931568569324174
"""log2 of Llama 3's rotary base, 500,000."""


LIMITS = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
"""Largest number of each 8-bit type of activations."""


@triton.jit
def _store_quantized(out, scales, row, columns, value, mask, WIDTH: tl.constexpr, LIMIT: tl.constexpr):
    """Store a row in 8 bits and its scale."""
    scale = tl.maximum(tl.max(tl.abs(value), 0), 1e-8) / LIMIT
    tl.store(scales + row, scale)
    scaled = value / scale
    if LIMIT == 127.0:
        scaled = tl.floor(scaled + 0.5)
    tl.store(out + row * WIDTH + columns, scaled.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _add_norm(x, residual, weight, out, scales, epsilon, HIDDEN: tl.constexpr, LIMIT: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, HIDDEN)
    here = row * HIDDEN + columns
    total = tl.load(residual + here).to(tl.float32) + tl.load(x + here).to(tl.float32)
    tl.store(residual + here, total)
    inverse = tl.rsqrt(tl.sum(total * total, 0) / HIDDEN + epsilon)
    normed = total * inverse * tl.load(weight + columns).to(tl.float32)
    if LIMIT > 0:
        _store_quantized(out, scales, row, columns, normed, columns < HIDDEN, HIDDEN, LIMIT)
    else:
        tl.store(out + here, normed)


@triton.jit
def _rotate(
    qkv, positions, log2_theta,
    ROTATED_HEADS: tl.constexpr, ALL_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PADDED_HEADS: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    position = tl.load(positions + token).to(tl.float32)
    HALF: tl.constexpr = HEAD_DIM // 2
    head = tl.arange(0, PADDED_HEADS)[:, None]
    pair = tl.arange(0, HALF)[None, :]
    at = qkv + token * ALL_HEADS * HEAD_DIM + head * HEAD_DIM + pair
    rotated = head < ROTATED_HEADS
    first = tl.load(at, mask=rotated, other=0.0).to(tl.float32)
    second = tl.load(at + HALF, mask=rotated, other=0.0).to(tl.float32)
    angle = position * tl.exp2(pair.to(tl.float32) * (-log2_theta / HALF))
    cosine, sine = tl.cos(angle), tl.sin(angle)
    tl.store(at, first * cosine - second * sine, mask=rotated)
    tl.store(at + HALF, second * cosine + first * sine, mask=rotated)


@triton.jit
def _write_cache(qkv, slots, keys, values, ROW: tl.constexpr, KV_OFFSET: tl.constexpr, KV_WIDTH: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token)
    flat = tl.arange(0, KV_WIDTH)
    source = qkv + token * ROW + KV_OFFSET + flat
    tl.store(keys + slot * KV_WIDTH + flat, tl.load(source))
    tl.store(values + slot * KV_WIDTH + flat, tl.load(source + KV_WIDTH))


@triton.jit
def _swiglu(gate_up, out, FFN: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < FFN
    gate = tl.load(gate_up + row * 2 * FFN + columns, mask=mask).to(tl.float32)
    up = tl.load(gate_up + row * 2 * FFN + FFN + columns, mask=mask).to(tl.float32)
    tl.store(out + row * FFN + columns, gate * tl.sigmoid(gate) * up, mask=mask)


@triton.jit
def _swiglu_quantize(gate_up, out, scales, FFN: tl.constexpr, BLOCK: tl.constexpr, LIMIT: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < FFN
    gate = tl.load(gate_up + row * 2 * FFN + columns, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * FFN + FFN + columns, mask=mask, other=0.0).to(tl.float32)
    _store_quantized(out, scales, row, columns, gate * tl.sigmoid(gate) * up, mask, FFN, LIMIT)


@triton.jit
def _quantize(x, out, scales, WIDTH: tl.constexpr, BLOCK: tl.constexpr, LIMIT: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < WIDTH
    value = tl.load(x + row * WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    _store_quantized(out, scales, row, columns, value, mask, WIDTH, LIMIT)


@triton.jit
def _merge(
    out, past, past_lse, own, own_lse, past_batch, past_head, past_row, own_batch, own_head, own_row,
    ROWS, SPLITS: tl.constexpr, HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    sequence = row // ROWS
    query = row % ROWS
    head = tl.arange(0, HEADS)[:, None]
    column = tl.arange(0, HEAD_DIM)[None, :]
    highest = tl.load(own_lse + (sequence * HEADS + head) * ROWS + query)
    total = tl.load(own + sequence * own_batch + head * own_head + query * own_row + column).to(tl.float32)
    weight = tl.full((HEADS, 1), 1.0, tl.float32)
    for i in tl.static_range(SPLITS):
        part = sequence * SPLITS + i
        lse = tl.load(past_lse + (part * HEADS + head) * ROWS + query)
        value = tl.load(past + part * past_batch + head * past_head + query * past_row + column).to(tl.float32)
        new = tl.maximum(highest, lse)
        kept, added = tl.exp(highest - new), tl.exp(lse - new)
        total = total * kept + value * added
        weight = weight * kept + added
        highest = new
    tl.store(out + row * HEADS * HEAD_DIM + head * HEAD_DIM + column, total / weight)


Quantized = tuple[torch.Tensor, torch.Tensor]


def add_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Add `x` to the residual in place and return its RMS norm."""
    out = torch.empty_like(x)
    hidden = x.shape[1]
    _add_norm[(x.shape[0],)](x, residual, weight, out, out, EPSILON, HIDDEN=hidden, LIMIT=0.0, num_warps=8)
    return out


def add_norm_quantize(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype) -> Quantized:
    """`add_norm` with its result in 8 bits, one scale per token."""
    out = torch.empty_like(x, dtype=dtype)
    scales = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    hidden = x.shape[1]
    _add_norm[(x.shape[0],)](x, residual, weight, out, scales, EPSILON, HIDDEN=hidden, LIMIT=LIMITS[dtype], num_warps=8)
    return out, scales


def rotate(qkv: torch.Tensor, positions: torch.Tensor, heads: int, kv_heads: int, head_dim: int) -> None:
    """Rotary embedding of queries and keys, in place."""
    rotated = heads + kv_heads
    _rotate[(qkv.shape[0],)](
        qkv, positions, ROPE_LOG2_THETA, ROTATED_HEADS=rotated, ALL_HEADS=rotated + kv_heads, HEAD_DIM=head_dim,
        PADDED_HEADS=triton.next_power_of_2(rotated), num_warps=4,
    )  # fmt: skip


def write_cache(qkv: torch.Tensor, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, heads: int) -> None:
    """Copy the tokens' keys and values into their slots of the cache."""
    kv_heads, head_dim = keys.shape[-2:]
    width = kv_heads * head_dim
    _write_cache[(qkv.shape[0],)](
        qkv,
        slots,
        keys,
        values,
        ROW=heads * head_dim + 2 * width,
        KV_OFFSET=heads * head_dim,
        KV_WIDTH=width,
        num_warps=4,
    )


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up."""
    tokens, ffn = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(tokens, ffn, dtype=gate_up.dtype, device=gate_up.device)
    block = 2048
    _swiglu[(tokens, triton.cdiv(ffn, block))](gate_up, out, FFN=ffn, BLOCK=block, num_warps=4)
    return out


def swiglu_quantize(gate_up: torch.Tensor, dtype: torch.dtype) -> Quantized:
    """`swiglu` with its result in 8 bits, one scale per token."""
    tokens, ffn = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(tokens, ffn, dtype=dtype, device=gate_up.device)
    scales = torch.empty(tokens, dtype=torch.float32, device=gate_up.device)
    block = triton.next_power_of_2(ffn)
    _swiglu_quantize[(tokens,)](gate_up, out, scales, FFN=ffn, BLOCK=block, LIMIT=LIMITS[dtype], num_warps=16)
    return out, scales


def quantize(x: torch.Tensor, dtype: torch.dtype) -> Quantized:
    """8 bits with one scale per token."""
    out = torch.empty_like(x, dtype=dtype)
    scales = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(x.shape[1])
    _quantize[(x.shape[0],)](x, out, scales, WIDTH=x.shape[1], BLOCK=block, LIMIT=LIMITS[dtype], num_warps=8)
    return out, scales


def merge_attention(
    past: torch.Tensor, past_lse: torch.Tensor, own: torch.Tensor, own_lse: torch.Tensor
) -> torch.Tensor:
    """Join attention over splits of the past with attention over the chunk itself, into one row per token.

    `own` is [sequences, heads, rows, head_dim]; `past` is the same with a sequence's splits one after another.
    """
    sequences, heads, rows, head_dim = own.shape
    out = torch.empty(sequences * rows, heads * head_dim, dtype=own.dtype, device=own.device)
    _merge[(sequences * rows,)](
        out, past, past_lse.contiguous(), own, own_lse.contiguous(), *past.stride()[:3], *own.stride()[:3],
        rows, SPLITS=past.shape[0] // sequences, HEADS=heads, HEAD_DIM=head_dim, num_warps=4,
    )  # fmt: skip
    return out
