"""The quantization tiers: one table, from which names, sizes, prices of answers and the engine's flags follow.

A tier's number is its position in the table, in every knob matrix, log and kernel. A profile has some of the tiers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationTier:
    """How the weights of a model are stored, and what its matrix products compute in."""

    name: str
    bytes_per_weight: float
    channel_scale_bytes: int = 0
    """Bytes of scales per output channel of a product."""
    group_weights: int = 0
    """Weights that share one scale along a product's inputs; 0 without groups."""
    group_scale_bytes: int = 0
    """Bytes of scales and zero points per group."""
    peak: float
    """Peak arithmetic rate relative to 16 bits, on a card that computes in this precision."""
    quality: float
    """What an answer is worth unless a task says otherwise; follows roughly the published losses of accuracy."""
    flag: str = ""
    """Value of `vllm serve --quantization`."""
    checkpoint: str
    """Which weights it needs."""


QUANTIZATION_TIERS = (
    QuantizationTier(name="FP16", bytes_per_weight=2.0, peak=1.0, quality=1.0, checkpoint="the original checkpoint"),
    QuantizationTier(
        name="INT8",
        bytes_per_weight=1.0,
        channel_scale_bytes=4,
        peak=2.0,
        quality=0.99,
        flag="compressed-tensors",
        checkpoint="a W8A8 checkpoint; vLLM also finds its format by itself",
    ),
    # Weights of 4 bits are expanded to 16 bits before the tensor cores.
    QuantizationTier(
        name="INT4",
        bytes_per_weight=0.5,
        group_weights=128,
        group_scale_bytes=4,
        peak=1.0,
        quality=0.95,
        flag="awq_marlin",
        checkpoint="a W4A16 checkpoint (AWQ; gptq_marlin for GPTQ)",
    ),
    QuantizationTier(
        name="FP8",
        bytes_per_weight=1.0,
        channel_scale_bytes=4,
        peak=2.0,
        quality=0.995,
        flag="fp8",
        checkpoint="the original checkpoint, rounded at the start, or a W8A8 one; Hopper or later",
    ),
    QuantizationTier(
        name="FP4",
        bytes_per_weight=0.5,
        group_weights=16,
        group_scale_bytes=1,
        peak=4.0,
        quality=0.98,
        flag="modelopt_fp4",
        checkpoint="an NVFP4 checkpoint; Blackwell or later",
    ),
)
TIER_NAMES = tuple(tier.name for tier in QUANTIZATION_TIERS)
TIER_NUMBERS = {name: number for number, name in enumerate(TIER_NAMES)}
TIERS_BY_NAME = {tier.name: tier for tier in QUANTIZATION_TIERS}
NUM_TIERS = len(TIER_NAMES)


def tier_name(number: float) -> str:
    """The name of a tier, from its number in a knob matrix."""
    return TIER_NAMES[int(number)]


def faster_tiers(offered: Iterable[int]) -> tuple[int, ...]:
    """The first of these tiers, and those whose products run at a higher peak rate: the ones that help under load."""
    first, *rest = offered
    return (first, *(n for n in rest if QUANTIZATION_TIERS[n].peak > QUANTIZATION_TIERS[first].peak))
