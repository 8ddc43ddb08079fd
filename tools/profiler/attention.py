"""Attention over the KV cache with PyTorch's libraries, arranged as in serving engines.

Query heads that share a key-value head are packed into one tile and long contexts are split over programs, so that a
few query tokens still read keys and values once and at full bandwidth.
"""

from __future__ import annotations

import torch

from tools.profiler.fused import merge_attention

TILE_ROWS = 128
"""Query rows of one cuDNN program."""
ENOUGH_PROGRAMS = 128
MAX_SPLITS = 16


def _cudnn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    result = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal)
    return result[0], result[1].reshape(q.shape[:3])


def _cudnn_output(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, False, 0.0, False)[0]
    return out


def _flash_output(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, False)[0]
    return out


def decode_one(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """One query token per sequence: q [sequences, 1, heads, head_dim]; rows of tokens out."""
    sequences, _, heads, head_dim = q.shape
    return _cudnn_output(q.transpose(1, 2), k, v).reshape(sequences, heads * head_dim)


def _by_kv_head(q: torch.Tensor, kv_heads: int) -> torch.Tensor:
    """[sequences, query, heads, head_dim] to [sequences, kv_heads, query * heads per kv head, head_dim]."""
    sequences, query, heads, head_dim = q.shape
    grouped = q.unflatten(2, (kv_heads, heads // kv_heads)).transpose(1, 2)
    return grouped.reshape(sequences, kv_heads, query * heads // kv_heads, head_dim)


def _by_token(out: torch.Tensor, query: int) -> torch.Tensor:
    sequences, kv_heads, packed, head_dim = out.shape
    tokens = out.unflatten(2, (query, packed // query)).transpose(1, 2)
    return tokens.reshape(sequences * query, kv_heads * packed // query * head_dim)


def _verify_as_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    packed = _by_kv_head(q, k.shape[1])
    out = _cudnn_output(packed.flatten(1, 2)[:, :, None], k, v)
    return _by_token(out.reshape(packed.shape), q.shape[1])


def _verify_as_rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return _by_token(_cudnn_output(_by_kv_head(q, k.shape[1]), k, v), q.shape[1])


def _verify_by_flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return _by_token(_flash_output(_by_kv_head(q, k.shape[1]), k, v), q.shape[1])


VERIFY = {"cudnn heads": _verify_as_heads, "cudnn rows": _verify_as_rows, "flash rows": _verify_by_flash}
"""Several query tokens per sequence. Their causal mask is left out because it changes no memory read."""


def prefill(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, past: int) -> torch.Tensor:
    """Causal attention of chunks [sequences, heads, tokens, head_dim] over `past` cached tokens and themselves."""
    own, own_lse = _cudnn(q, k[:, :, past:], v[:, :, past:], True)
    if past == 0:
        sequences, heads, tokens, head_dim = own.shape
        return own.transpose(1, 2).reshape(sequences * tokens, heads * head_dim)
    before, before_lse = _over_past(q, k[:, :, :past], v[:, :, :past])
    return merge_attention(before, before_lse, own, own_lse)


def _over_past(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention over the past in splits: [sequences * splits, heads, tokens, head_dim] and its log-sum-exp."""
    sequences, heads, tokens, head_dim = q.shape
    kv_heads, past = k.shape[1:3]
    # A short chunk fills a tile only together with the other query heads of its key-value head.
    packed = q.reshape(sequences, kv_heads, heads // kv_heads * tokens, head_dim) if tokens < TILE_ROWS else q
    splits = splits_for(sequences * packed.shape[1] * -(-packed.shape[2] // TILE_ROWS), past)
    wide = packed[:, None].expand(-1, splits, -1, -1, -1).flatten(0, 1) if splits > 1 else packed
    k, v = (t.unflatten(2, (splits, past // splits)).transpose(1, 2).flatten(0, 1) for t in (k, v))
    out, lse = _cudnn(wide, k, v, False)
    shape = (sequences * splits, heads, tokens)
    return out.reshape(*shape, head_dim), lse.reshape(shape)


def splits_for(programs: int, past: int) -> int:
    """Splits of the past that give the GPU enough programs; the past must divide evenly."""
    splits = 1
    while programs * splits < ENOUGH_PROGRAMS and splits < MAX_SPLITS and past % (2 * splits) == 0:
        splits *= 2
    return splits
