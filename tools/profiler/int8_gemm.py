"""W8A8 matrix products: INT8 operands, INT32 sums, per-token and per-output-channel scales applied to the sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from tools.profiler.fused import Quantized
from tools.profiler.split_k import reduce_splits, splits_for, workspace


@dataclass(frozen=True)
class Int8Weight:
    """[output, input] weights in INT8 and one scale per output channel."""

    values: torch.Tensor
    scales: torch.Tensor


@triton.jit
def _int8_gemm(
    weight, x, out, weight_scales, x_scales, sums, counters, M, N, K,
    BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, SPLITS: tl.constexpr,
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
    total = tl.zeros((BN, BM), dtype=tl.int32)
    for _ in range(first, last):
        total = tl.dot(tl.load(w_at), tl.load(x_at, mask=real[None, :], other=0), total, out_dtype=tl.int32)
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


Int8Gemm = Callable[[Quantized, Int8Weight], torch.Tensor]


def fused_gemm(bn: int, bm: int, bk: int, warps: int, stages: int, programs: int) -> Int8Gemm:
    """The Triton kernel at one tile size, with its inner dimension split over about `programs` programs."""

    def gemm(x: Quantized, weight: Int8Weight) -> torch.Tensor:
        values, scales = x
        tokens, inputs = values.shape
        outputs = weight.values.shape[0]
        out = torch.empty(tokens, outputs, dtype=torch.bfloat16, device=values.device)
        tiles = triton.cdiv(outputs, bn) * triton.cdiv(tokens, bm)
        splits = splits_for(tiles, inputs // bk, programs)
        _int8_gemm[(tiles, splits)](
            weight.values, values, out, weight.scales, scales, *workspace(torch.int32), tokens, outputs, inputs,
            BN=bn, BM=bm, BK=bk, GROUP=8, SPLITS=splits, num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return out

    return gemm


def cublas_gemm(x: Quantized, weight: Int8Weight) -> torch.Tensor:
    """`torch._int_mm` (cuBLASLt) and a kernel that scales its sums."""
    values, scales = x
    sums = torch._int_mm(values, weight.values.t())
    out = torch.empty(sums.shape, dtype=torch.bfloat16, device=sums.device)
    outputs = sums.shape[1]
    _scale[(sums.shape[0], triton.cdiv(outputs, 4096))](
        sums, out, weight.scales, scales, outputs, BLOCK=4096, num_warps=8
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


def candidates(tokens: int) -> dict[str, Int8Gemm]:
    """Candidate kernels for this many tokens."""
    size = next((s for s in TILES if tokens <= s), max(TILES))
    found: dict[str, Int8Gemm] = {"triton " + "x".join(map(str, tile)): fused_gemm(*tile) for tile in TILES[size]}
    if tokens >= CUBLAS_MIN_TOKENS:
        found["cublas"] = cublas_gemm
    return found


def quantize_weight(weight: torch.Tensor) -> Int8Weight:
    """Symmetric INT8 per output channel."""
    scales = weight.abs().amax(dim=1).float() / 127.0
    values = torch.round(weight.float() / scales[:, None]).to(torch.int8)
    return Int8Weight(values, scales)
