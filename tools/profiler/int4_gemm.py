"""W4A16 matrix products: 4-bit weights in groups of 128 along the input, expanded to bf16 inside the kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from tools.profiler.split_k import reduce_splits, splits_for, workspace

GROUP = 128
"""Weights per scale."""


@dataclass(frozen=True)
class Int4Weight:
    """Words [output / 64, input / 64, 512], scales [input / 128, output], and the same weights packed for PyTorch."""

    packed: torch.Tensor
    scales: torch.Tensor
    torch_packed: torch.Tensor
    torch_scales: torch.Tensor
    scratch: torch.Tensor
    """Shared 16-bit buffer that large batches expand the weights into."""

    @property
    def shape(self) -> tuple[int, int]:
        return 64 * self.packed.shape[0], 64 * self.packed.shape[1]


@triton.jit
def _nibbles(words):
    # 0x4300 | q is the bf16 number 128 + q, so expanding two weights costs a shift, a mask and a fused multiply-add.
    return tl.inline_asm_elementwise(
        """
        {
        .reg .b32 a, b, c, d, mask, magic, one, bias;
        mov.b32 mask, 0x000F000F;
        mov.b32 magic, 0x43004300;
        mov.b32 one, 0x3F803F80;
        mov.b32 bias, 0xC308C308;
        shr.u32 b, $8, 4;
        shr.u32 c, $8, 8;
        shr.u32 d, $8, 12;
        lop3.b32 a, $8, mask, magic, 0xEA;
        lop3.b32 b, b, mask, magic, 0xEA;
        lop3.b32 c, c, mask, magic, 0xEA;
        lop3.b32 d, d, mask, magic, 0xEA;
        fma.rn.bf16x2 a, a, one, bias;
        fma.rn.bf16x2 b, b, one, bias;
        fma.rn.bf16x2 c, c, one, bias;
        fma.rn.bf16x2 d, d, one, bias;
        mov.b32 {$0, $1}, a;
        mov.b32 {$2, $3}, b;
        mov.b32 {$4, $5}, c;
        mov.b32 {$6, $7}, d;
        }
        """,
        "=h,=h,=h,=h,=h,=h,=h,=h,r",
        [words],
        dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16),
        is_pure=True,
        pack=1,
    )


@triton.jit
def _expanded(words, BN: tl.constexpr):
    """[BN / 64, 1024] words to [BN, 128] weights, each in the register that its matrix instruction reads."""
    a, b, c, d, e, f, g, h = _nibbles(words)
    joined = tl.join(tl.join(tl.join(a, b), tl.join(c, d)), tl.join(tl.join(e, f), tl.join(g, h)))
    # Axes: row block, input block, warp, row in eight, lane pair, input in four, even or odd, upper row, upper input.
    axes = tl.reshape(joined, (BN // 64, 2, 4, 8, 4, 4, 2, 2, 2))
    return tl.reshape(tl.permute(axes, (0, 2, 7, 3, 1, 5, 8, 4, 6)), (BN, 128))


@triton.jit
def _scaled(weights, scales):
    # Two products per instruction; plain Triton would widen both to 32 bits first.
    return tl.inline_asm_elementwise(
        "mul.rn.bf16x2 $0, $1, $2;", "=r,r,r", [weights, scales], dtype=tl.bfloat16, is_pure=True, pack=2
    )


@triton.jit
def _int4_gemm(
    packed, scales, x, out, sums, counters, M, N, K,
    BN: tl.constexpr, BM: tl.constexpr, SCALE_SUMS: tl.constexpr, GROUP_N: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    split = tl.program_id(1)
    n_blocks = tl.cdiv(N, BN)
    m_blocks = tl.cdiv(M, BM)
    per_group = GROUP_N * m_blocks
    first_n = (program // per_group) * GROUP_N
    height = tl.minimum(n_blocks - first_n, GROUP_N)
    n_block = first_n + (program % per_group) % height
    n = n_block * BN + tl.arange(0, BN)
    m = ((program % per_group) // height) * BM + tl.arange(0, BM)
    steps = tl.cdiv(K // 128, SPLITS)
    first = split * steps
    last = tl.minimum(first + steps, K // 128)
    block_row = (n_block * (BN // 64) + tl.arange(0, BN // 64)).to(tl.int64)
    w_at = packed + block_row[:, None] * (K * 8) + first * 1024 + tl.arange(0, 1024)[None, :]
    x_at = x + m.to(tl.int64)[None, :] * K + first * 128 + tl.arange(0, 128)[:, None]
    s_at = scales + first * N + n
    real = m < M
    total = tl.zeros((BN, BM), dtype=tl.float32)
    for _ in range(first, last):
        weights = _expanded(tl.load(w_at), BN)
        tokens = tl.load(x_at, mask=real[None, :], other=0.0)
        scale = tl.load(s_at)
        if SCALE_SUMS:
            total += tl.dot(weights, tokens) * scale.to(tl.float32)[:, None]
        else:
            total = tl.dot(_scaled(weights, tl.broadcast_to(scale[:, None], (BN, 128))), tokens, total)
        w_at += 1024
        x_at += 128
        s_at += N
    is_last = True
    if SPLITS > 1:
        total, is_last = reduce_splits(total, sums, counters, program, n_blocks * m_blocks, split, BN, BM, SPLITS)
    if is_last:
        at = out + m.to(tl.int64)[:, None] * N + n[None, :]
        tl.store(at, tl.trans(total).to(tl.bfloat16), mask=real[:, None])


@triton.jit
def _expand(packed, scales, out, N, K):
    block = tl.program_id(0)
    group = tl.program_id(1)
    n = block * 64 + tl.arange(0, 64)
    weights = _expanded(tl.load(packed + block.to(tl.int64) * (K * 8) + group * 1024 + tl.arange(0, 1024)[None, :]), 64)
    scale = tl.load(scales + group * N + n)
    k = group * 128 + tl.arange(0, 128)
    tl.store(
        out + n.to(tl.int64)[:, None] * K + k[None, :], _scaled(weights, tl.broadcast_to(scale[:, None], (64, 128)))
    )


Int4Gemm = Callable[[torch.Tensor, Int4Weight], torch.Tensor]


def fused_gemm(bn: int, bm: int, scale_sums: int, warps: int, stages: int, programs: int) -> Int4Gemm:
    """The Triton kernel at one tile size, with its inner dimension split over about `programs` programs."""

    def gemm(x: torch.Tensor, weight: Int4Weight) -> torch.Tensor:
        tokens = x.shape[0]
        outputs, inputs = weight.shape
        out = torch.empty(tokens, outputs, dtype=torch.bfloat16, device=x.device)
        tiles = triton.cdiv(outputs, bn) * triton.cdiv(tokens, bm)
        splits = splits_for(tiles, inputs // GROUP, programs)
        _int4_gemm[(tiles, splits)](
            weight.packed, weight.scales, x, out, *workspace(torch.float32), tokens, outputs, inputs,
            BN=bn, BM=bm, SCALE_SUMS=bool(scale_sums), GROUP_N=8, SPLITS=splits, num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return out

    return gemm


def torch_gemm(x: torch.Tensor, weight: Int4Weight) -> torch.Tensor:
    """PyTorch's packed INT4 product, made for few tokens."""
    return torch._weight_int4pack_mm(x, weight.torch_packed, GROUP, weight.torch_scales)


def expand(weight: Int4Weight) -> torch.Tensor:
    """The weights in bf16, in the scratch buffer."""
    outputs, inputs = weight.shape
    out = weight.scratch[: outputs * inputs].view(outputs, inputs)
    _expand[(outputs // 64, inputs // GROUP)](weight.packed, weight.scales, out, outputs, inputs, num_warps=4)
    return out


def expanding_gemm(x: torch.Tensor, weight: Int4Weight) -> torch.Tensor:
    """Expand the weights to bf16 and run a cuBLAS product, as engines do for large batches."""
    return torch.nn.functional.linear(x, expand(weight))


TORCH_MAX_TOKENS = 16
EXPANDING_MIN_TOKENS = 128
TILES = {
    16: [
        (64, 16, 1, 4, 6, 1),
        (64, 16, 1, 4, 6, 528),
        (128, 16, 1, 4, 5, 264),
        (128, 16, 1, 8, 6, 264),
        (64, 16, 1, 4, 6, 264),
    ],
    32: [
        (64, 32, 1, 4, 6, 264),
        (64, 32, 1, 4, 6, 528),
        (128, 32, 1, 8, 5, 264),
        (128, 32, 1, 8, 5, 132),
        (64, 32, 1, 4, 6, 1),
    ],
    64: [
        (128, 64, 1, 8, 5, 264),
        (128, 64, 0, 8, 5, 264),
        (64, 64, 1, 4, 5, 264),
        (64, 64, 0, 4, 5, 528),
        (128, 64, 0, 8, 5, 132),
    ],
    128: [(128, 128, 1, 8, 4, 132), (64, 128, 1, 4, 3, 264), (128, 64, 1, 8, 3, 264), (64, 64, 1, 4, 4, 528)],
    256: [(128, 128, 1, 8, 4, 132), (64, 128, 1, 4, 3, 1), (128, 256, 0, 8, 3, 132), (256, 128, 0, 8, 3, 132)],
    512: [(128, 128, 1, 8, 4, 1), (64, 128, 1, 4, 3, 1), (256, 128, 0, 8, 3, 1)],
    1024: [(256, 128, 0, 8, 3, 1)],
}
"""Tile sizes worth trying by tokens: outputs, tokens, scale the sums, warps, stages, programs."""


def candidates(tokens: int) -> dict[str, Int4Gemm]:
    """Candidate kernels for this many tokens."""
    size = next((s for s in TILES if tokens <= s), max(TILES))
    found: dict[str, Int4Gemm] = {"triton " + "x".join(map(str, tile)): fused_gemm(*tile) for tile in TILES[size]}
    if tokens <= TORCH_MAX_TOKENS:
        found["torch"] = torch_gemm
    if tokens >= EXPANDING_MIN_TOKENS:
        found["expand + cublas"] = expanding_gemm
    return found


def quantize_weight(weight: torch.Tensor, scratch: torch.Tensor) -> Int4Weight:
    """Symmetric INT4 in groups of 128 along the input: value = (nibble - 8) * scale."""
    outputs, inputs = weight.shape
    groups = weight.float().view(outputs, inputs // GROUP, GROUP)
    scales = (groups.abs().amax(dim=2) / 7.0).clamp_min(1e-8).to(torch.bfloat16)
    nibbles = (torch.round(groups / scales.float()[:, :, None]).clamp(-8, 7) + 8).to(torch.uint8)
    packed = _pack(nibbles.view(outputs, inputs))
    flat = nibbles.view(outputs, inputs)
    # PyTorch's packing takes the even input in the high nibble.
    torch_packed = torch._convert_weight_to_int4pack(((flat[:, ::2] << 4) | flat[:, 1::2]).contiguous(), 8)
    by_group = scales.t().contiguous()
    torch_scales = torch.stack([by_group, torch.zeros_like(by_group)], dim=2).contiguous()
    return Int4Weight(packed, by_group, torch_packed, torch_scales, scratch)


def _pack(nibbles: torch.Tensor) -> torch.Tensor:
    """Eight weights of one thread of the matrix instruction into each word, a thread's four words side by side."""
    outputs, inputs = nibbles.shape
    # Axes: row block, warp, upper row, row in eight, input block, input in four, upper input, lane pair, even or odd.
    axes = nibbles.view(outputs // 64, 4, 2, 8, inputs // 64, 4, 2, 4, 2)
    eights = axes.permute(0, 4, 1, 3, 7, 5, 8, 6, 2).reshape(outputs // 64, inputs // 64, 512, 8).long()
    shifts = torch.arange(0, 32, 4, device=nibbles.device)
    return (eights << shifts).sum(dim=3).to(torch.int32).contiguous()
