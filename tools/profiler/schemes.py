"""The quantization tiers that can be timed: how they round weights and activations, and which kernels multiply them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn.functional import linear

from tools.profiler import int4_gemm, w8a8_gemm


@dataclass(frozen=True)
class Scheme:
    """One tier."""

    weight: Callable[[torch.Tensor, torch.Tensor], Any]
    """Rounds [output, input] weights; the second tensor is a shared 16-bit buffer of the largest product's size."""
    candidates: Callable[[int], dict[str, Any]]
    """Kernels worth trying for so many tokens."""
    activations: torch.dtype | None = None
    """8-bit type that activations are rounded to, one scale per token; None leaves them in 16 bits."""
    capability: tuple[int, int] = (8, 0)
    """CUDA compute capability from which on the kernels run."""


def _w8a8(dtype: torch.dtype, capability: tuple[int, int]) -> Scheme:
    return Scheme(
        weight=lambda weight, _: w8a8_gemm.quantize_weight(weight, dtype),
        candidates=partial(w8a8_gemm.candidates, dtype=dtype),
        activations=dtype,
        capability=capability,
    )


SCHEMES = {
    "FP16": Scheme(lambda weight, _: weight, lambda _: {"cublas": linear}),
    "INT8": _w8a8(torch.int8, (8, 0)),
    "INT4": Scheme(int4_gemm.quantize_weight, int4_gemm.candidates),
    "FP8": _w8a8(torch.float8_e4m3fn, (9, 0)),
}
"""In the order in which they were added, which the seeds of random iterations follow."""


def available() -> list[str]:
    """The tiers that this machine's card can run."""
    capability = torch.cuda.get_device_capability()
    return [name for name, scheme in SCHEMES.items() if capability >= scheme.capability]
