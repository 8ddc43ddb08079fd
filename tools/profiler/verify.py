"""Check every kernel against plain PyTorch in higher precision, on random data."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import scaled_dot_product_attention, silu

from tools.profiler import attention, fused, int4_gemm, w8a8_gemm
from tools.profiler.schemes import SCHEMES

GEMM_TOKENS = (1, 16, 31, 64, 100, 300)
TOLERANCE = 1e-2
"""Relative error of a bf16 result against a 32-bit reference."""
QUANTIZED_TOLERANCES = {"quantize": 0.05, "INT4 weights": 0.15}
"""The same for kernels whose result is itself rounded to a few bits."""


def _random(*shape: int, std: float = 1.0) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_(0.0, std)


def _error(out: torch.Tensor, reference: torch.Tensor) -> float:
    return float((out.double() - reference.double()).norm() / reference.double().norm())


def _norms(types: Sequence[torch.dtype]) -> dict[str, float]:
    x, residual, weight = _random(37, 4096), _random(37, 4096), _random(4096)
    total = x.float() + residual.float()
    normed = total * torch.rsqrt(total.pow(2).mean(1, keepdim=True) + fused.EPSILON) * weight.float()
    kept = residual.clone()
    errors = {"add_norm": _error(fused.add_norm(x, kept, weight), normed), "add_norm residual": _error(kept, total)}
    for dtype in types:
        quantized, scales = fused.add_norm_quantize(x, residual.clone(), weight, dtype)
        errors[f"add_norm_quantize {dtype}"] = _error(quantized.float() * scales[:, None], normed)
    return errors


def _swiglu(types: Sequence[torch.dtype]) -> dict[str, float]:
    gate_up = _random(21, 2 * 14336)
    gate, up = gate_up.float().chunk(2, dim=1)
    errors = {"swiglu": _error(fused.swiglu(gate_up), silu(gate) * up)}
    for dtype in types:
        quantized, scales = fused.swiglu_quantize(gate_up, dtype)
        errors[f"swiglu_quantize {dtype}"] = _error(quantized.float() * scales[:, None], silu(gate) * up)
    return errors


def _rotation() -> dict[str, float]:
    heads, kv_heads, head_dim, tokens = 32, 8, 128, 19
    qkv = _random(tokens, (heads + 2 * kv_heads) * head_dim)
    original = qkv.float().view(tokens, heads + 2 * kv_heads, head_dim)
    positions = torch.randint(0, 4096, (tokens,), device="cuda")
    slots = torch.randperm(64, device="cuda")[:tokens]
    keys, values = torch.zeros(2, 64, kv_heads, head_dim, dtype=torch.bfloat16, device="cuda")
    fused.rotate(qkv, positions, heads, kv_heads, head_dim)
    fused.write_cache(qkv, slots, keys, values, heads)
    frequency = 2.0 ** (-fused.ROPE_LOG2_THETA * torch.arange(head_dim // 2, device="cuda") / (head_dim // 2))
    angle = (positions[:, None].double() * frequency.double())[:, None, :]
    first, second = original.double().chunk(2, dim=2)
    rotated = torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], dim=2)
    out = qkv.view(tokens, -1, head_dim)
    return {
        "rotated queries": _error(out[:, :heads], rotated[:, :heads]),
        "cached keys": _error(keys[slots], rotated[:, heads : heads + kv_heads]),
        "cached values": _error(values[slots], original[:, heads + kv_heads :]),
    }


def _w8a8_gemms(dtype: torch.dtype) -> dict[str, float]:
    errors: dict[str, float] = {}
    for tokens in GEMM_TOKENS:
        x, weight = _random(tokens, 4096), _random(6144, 4096, std=0.02)
        rounded = w8a8_gemm.quantize_weight(weight, dtype)
        values, scales = operand = fused.quantize(x, dtype)
        reference = (values.float().double() * scales[:, None]) @ (
            rounded.values.float().double() * rounded.scales[:, None]
        ).t()
        for name, gemm in w8a8_gemm.candidates(tokens, dtype).items():
            errors[f"{dtype} {tokens} {name}"] = _error(gemm(operand, rounded), reference)
    return errors


def _int4_gemms() -> dict[str, float]:
    errors: dict[str, float] = {}
    for tokens in GEMM_TOKENS:
        x, weight = _random(tokens, 4096), _random(6144, 4096, std=0.02)
        scratch = torch.empty(6144 * 4096, dtype=torch.bfloat16, device="cuda")
        int4 = int4_gemm.quantize_weight(weight, scratch)
        expanded = int4_gemm.expand(int4).clone()
        errors[f"INT4 weights {tokens}"] = _error(expanded, weight)
        for name, expanding in int4_gemm.candidates(tokens).items():
            errors[f"INT4 {tokens} {name}"] = _error(expanding(x, int4), x.double() @ expanded.double().t())
    return errors


def _attention() -> dict[str, float]:
    errors: dict[str, float] = {}
    for tokens, past, count in ((64, 0, 2), (48, 208, 2), (130, 512, 1)):
        q = _random(count, tokens, 32, 128).transpose(1, 2)
        k, v = (_random(count, past + tokens, 8, 128).transpose(1, 2) for _ in range(2))
        mask = torch.ones(tokens, past + tokens, dtype=torch.bool, device="cuda").tril(past)
        reference = scaled_dot_product_attention(q.float(), k.float(), v.float(), mask, enable_gqa=True)
        rows = reference.transpose(1, 2).reshape(count * tokens, -1)
        errors[f"prefill {tokens} on {past}"] = _error(attention.prefill(q, k, v, past), rows)
    for query in (1, 3, 9):
        q = _random(5, query, 32, 128)
        k, v = (_random(5, 300, 8, 128).transpose(1, 2) for _ in range(2))
        reference = scaled_dot_product_attention(q.transpose(1, 2).float(), k.float(), v.float(), enable_gqa=True)
        rows = reference.transpose(1, 2).reshape(5 * query, -1)
        kernels = {"decode": attention.decode_one} if query == 1 else attention.VERIFY
        for name, kernel in kernels.items():
            errors[f"{name} {query}"] = _error(kernel(q, k, v), rows)
    return errors


def _tolerance(name: str) -> float:
    return next((limit for part, limit in QUANTIZED_TOLERANCES.items() if part in name), TOLERANCE)


def check_kernels(tiers: Sequence[str]) -> dict[str, float]:
    """Relative errors of the kernels of these tiers; raises if one exceeds the rounding error of bf16."""
    torch.manual_seed(0)
    types = [dtype for tier in tiers if (dtype := SCHEMES[tier].activations) is not None]
    errors = {**_norms(types), **_swiglu(types), **_rotation(), **_attention()}
    for dtype in types:
        errors |= _w8a8_gemms(dtype)
    if "INT4" in tiers:
        errors |= _int4_gemms()
    wrong = {name: error for name, error in errors.items() if not error < _tolerance(name)}
    if wrong:
        raise RuntimeError(f"kernels disagree with their references: {wrong}")
    return errors
