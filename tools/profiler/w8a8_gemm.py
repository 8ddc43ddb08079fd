"""W8A8 matrix products: INT8 or FP8 operands, 32-bit sums, per-token and per-output-channel scales on the sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from tools.profiler.fused import LIMITS, Quantized
from tools.profiler.split_k import reduce_splits, splits_for, workspace


@dataclass(frozen=True)
class Weight8:
    """[output, input] weights in 8 bits and one scale per output channel."""

    values: torch.Tensor
    scales: torch.Tensor


@triton.jit
def _w8a8_gemm(
    weight, x, out, weight_scales, x_scales, sums, counters, M, N, K,
    BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, SPLITS: tl.constexpr,
    SUM: tl.constexpr,
):  # fmt: skip
    # The product is computed transposed, so that a few tokens still fill the tensor cores' 64-row side with outputs.
    program = tl.program_id(0)
    split = tl.program_id(1)
    n_blocks = tl.cdiv(N, BN)
    m_blocks = tl.cdiv(M, BM)
    per_group = GROUP * m_blocks
    first_n = (program // per_group) * GROUP
    height = tl.minimum(n_blocks - first_n, GROUP)
    n = (first_n + (program % per_group) % height) * BN + tl.arange(0, BN)
    m = ((program % per_group) // height) * BM + tl.arange(0, BM)
    steps = tl.cdiv(K // BK, SPLITS)
    first = split * steps
    last = tl.minimum(first + steps, K // BK)
    k = first * BK + tl.arange(0, BK)
    w_at = weight + n.to(tl.int64)[:, None] * K + k[None, :]
    x_at = x + m.to(tl.int64)[None, :] * K + k[:, None]
    real = m < M
    total = tl.zeros((BN, BM), dtype=SUM)
    for _ in range(first, last):
        total = tl.dot(tl.load(w_at), tl.load(x_at, mask=real[None, :], other=0.0), total, out_dtype=SUM)
        w_at += BK
        x_at += BK
    is_last = True
    if SPLITS > 1:
        total, is_last = reduce_splits(total, sums, counters, program, n_blocks * m_blocks, split, BN, BM, SPLITS)
    if is_last:
        scale = tl.load(weight_scales + n)[:, None] * tl.load(x_scales + m, mask=real, other=0.0)[None, :]
        at = out + m.to(tl.int64)[:, None] * N + n[None, :]
        tl.store(at, tl.trans(total.to(tl.float32) * scale).to(tl.bfloat16), mask=real[:, None])


@triton.jit
def _scale(sums, out, weight_scales, x_scales, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < N
    value = tl.load(sums + row * N + columns, mask=mask, other=0).to(tl.float32)
    scale = tl.load(x_scales + row) * tl.load(weight_scales + columns, mask=mask, other=0.0)
    tl.store(out + row * N + columns, value * scale, mask=mask)


SUMS = {torch.int8: torch.int32, torch.float8_e4m3fn: torch.float32}
TRITON_SUMS = {torch.int32: tl.int32, torch.float32: tl.float32}
"""Type of the sums, by the type of the operands, and its name in Triton."""

Gemm8 = Callable[[Quantized, Weight8], torch.Tensor]


def fused_gemm(bn: int, bm: int, bk: int, warps: int, stages: int, programs: int) -> Gemm8:
    """The Triton kernel at one tile size, with its inner dimension split over about `programs` programs."""

    def gemm(x: Quantized, weight: Weight8) -> torch.Tensor:
        values, scales = x
        tokens, inputs = values.shape
        outputs = weight.values.shape[0]
        out = torch.empty(tokens, outputs, dtype=torch.bfloat16, device=values.device)
        tiles = triton.cdiv(outputs, bn) * triton.cdiv(tokens, bm)
        splits = splits_for(tiles, inputs // bk, programs)
        sums = SUMS[values.dtype]
        _w8a8_gemm[(tiles, splits)](
            weight.values, values, out, weight.scales, scales, *workspace(sums), tokens, outputs, inputs,
            BN=bn, BM=bm, BK=bk, GROUP=8, SPLITS=splits, SUM=TRITON_SUMS[sums], num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return out

    return gemm


def cublas_gemm(x: Quantized, weight: Weight8) -> torch.Tensor:
    """`torch._int_mm` (cuBLASLt) and a kernel that scales its sums."""
    values, scales = x
    sums = torch._int_mm(values, weight.values.t())
    out = torch.empty(sums.shape, dtype=torch.bfloat16, device=sums.device)
    outputs = sums.shape[1]
    _scale[(sums.shape[0], triton.cdiv(outputs, 4096))](
        sums, out, weight.scales, scales, outputs, BLOCK=4096, num_warps=8
    )
    return out


def scaled_gemm(x: Quantized, weight: Weight8) -> torch.Tensor:
    """`torch._scaled_mm` with a scale per row of either operand (FP8 only)."""
    values, scales = x
    out: torch.Tensor = torch._scaled_mm(
        values,
        weight.values.t(),
        scale_a=scales[:, None],
        scale_b=weight.scales[None, :],
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )
    return out


CUBLAS_MIN_TOKENS = 17
"""`torch._int_mm` refuses fewer rows."""
TILES = {
    16: [(32, 16, 256, 4, 5, 1), (64, 16, 256, 4, 4, 1), (64, 16, 256, 4, 4, 264), (128, 16, 128, 4, 5, 264)],
    32: [(32, 32, 256, 4, 5, 1), (64, 32, 256, 4, 4, 1), (64, 32, 256, 4, 4, 264), (128, 32, 128, 4, 5, 264)],
    64: [(64, 64, 256, 4, 4, 1), (64, 64, 128, 4, 6, 264), (128, 64, 128, 4, 5, 264), (64, 64, 128, 4, 6, 1)],
    128: [(64, 128, 128, 4, 5, 1), (128, 128, 128, 8, 4, 1), (64, 128, 128, 4, 5, 264), (128, 128, 128, 8, 4, 132)],
    256: [(128, 128, 128, 8, 4, 1), (128, 128, 128, 8, 4, 132), (128, 256, 128, 8, 3, 132), (256, 128, 128, 8, 3, 132)],
    512: [(128, 128, 128, 8, 4, 1), (128, 128, 128, 8, 4, 132), (128, 256, 128, 8, 3, 1), (256, 128, 128, 8, 3, 1)],
}
"""Tile sizes worth trying by tokens: outputs, tokens, inner step, warps, stages, programs."""


MIN_FP8_OUTPUTS = 64
"""Rows of a tile that Hopper's FP8 instructions need."""


def candidates(tokens: int, dtype: torch.dtype) -> dict[str, Gemm8]:
    """Candidate kernels for this many tokens in an 8-bit type."""
    size = next((s for s in TILES if tokens <= s), max(TILES))
    is_fp8 = dtype == torch.float8_e4m3fn
    tiles = [tile for tile in TILES[size] if not is_fp8 or tile[0] >= MIN_FP8_OUTPUTS]
    found: dict[str, Gemm8] = {"triton " + "x".join(map(str, tile)): fused_gemm(*tile) for tile in tiles}
    if is_fp8:
        found["scaled_mm"] = scaled_gemm
    elif tokens >= CUBLAS_MIN_TOKENS:
        found["cublas"] = cublas_gemm
    return found


def quantize_weight(weight: torch.Tensor, dtype: torch.dtype) -> Weight8:
    """Symmetric, with a scale per output channel."""
    scales = weight.abs().amax(dim=1).float() / LIMITS[dtype]
    values = weight.float() / scales[:, None]
    return Weight8((torch.round(values) if dtype == torch.int8 else values).to(dtype), scales)
