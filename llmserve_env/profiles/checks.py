"""Physical limits: a time below the roofline of the profile's GPU marks a broken profile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmserve_env.engine.tiers import TIERS_BY_NAME

if TYPE_CHECKING:
    from llmserve_env.profiles.schema import Profile, Tier

TOLERANCE = 1.02
"""Datasheet peaks are rounded, so times may exceed them by this small margin."""
CACHED_BYTES = 128 << 20
"""Smaller keys and values may fit into the L2 cache, where memory bandwidth is not a limit."""
SEPARABLE_MS = 0.05
"""Attention with a shorter minimum time is not checked; a fit may have put it into another term."""


def implausibilities(profile: Profile) -> list[str]:
    """Descriptions of every time that exceeds the GPU's peak; empty for a sound profile."""
    found: list[str] = []
    for name, tier in profile.tiers.items():
        if tier.weight_bytes >= profile.gpu.memory_bytes:
            found.append(
                f"{name}: weights of {tier.weight_bytes} bytes do not fit the GPU's {profile.gpu.memory_bytes}"
            )
        found.extend(_too_fast_gemm(profile, name, tier))
        found.extend(_too_fast_attention(profile, name, tier))
    return found


def _too_fast_gemm(profile: Profile, name: str, tier: Tier) -> Iterator[str]:
    gpu, model = profile.gpu, profile.model
    peak = gpu.peak_flops_per_s.get(name)
    if peak is None:
        yield f"gpu.peak_flops_per_s lacks {name}"
        return
    floor_ms = model.linear_parameters * TIERS_BY_NAME[name].bytes_per_weight / gpu.memory_bandwidth_bytes_per_s * 1e3
    fixed_ms = tier.overhead_us / 1e3
    for tokens, ms in zip(tier.gemm_tokens.x, tier.gemm_tokens.ms, strict=True):
        if tokens == 0:
            continue
        if (ms + fixed_ms) * TOLERANCE < floor_ms:
            yield (
                f"{name}: {ms:.3f} ms of GEMM at {tokens} tokens reads the weights faster than the memory's "
                f"{gpu.memory_bandwidth_bytes_per_s / 1e9:.0f} GB/s allows ({floor_ms:.3f} ms)"
            )
        least_ms = 2 * model.linear_parameters * tokens / peak * 1e3
        if (ms + fixed_ms) * TOLERANCE < least_ms:
            yield (
                f"{name}: {ms:.3f} ms of GEMM at {tokens} tokens is above the card's peak of "
                f"{peak / 1e12:.0f} TFLOP/s (at least {least_ms:.3f} ms)"
            )


def _too_fast_attention(profile: Profile, name: str, tier: Tier) -> Iterator[str]:
    gpu, model = profile.gpu, profile.model
    for attention in tier.decode_attention:
        for tokens, ms in zip(attention.context_tokens.x, attention.context_tokens.ms, strict=True):
            read_bytes = tokens * model.kv_bytes_per_token
            least_ms = read_bytes / gpu.memory_bandwidth_bytes_per_s * 1e3
            if read_bytes > CACHED_BYTES and ms * TOLERANCE < least_ms:
                yield (
                    f"{name}: decode attention (q = {attention.query_tokens}) over {tokens} tokens in {ms:.3f} ms "
                    f"is above the memory's bandwidth (at least {least_ms:.3f} ms)"
                )
    peak = gpu.peak_flops_per_s["FP16"]
    for pairs, ms in zip(tier.prefill_attention_pairs.x, tier.prefill_attention_pairs.ms, strict=True):
        least_ms = pairs * model.attention_flops_per_pair / peak * 1e3
        if least_ms > SEPARABLE_MS and ms * TOLERANCE < least_ms:
            yield (
                f"{name}: prefill attention over {pairs} pairs in {ms:.3f} ms is above the card's peak of "
                f"{peak / 1e12:.0f} TFLOP/s (at least {least_ms:.3f} ms)"
            )


def least_factors(profile: Profile, name: str) -> tuple[float, float, float]:
    """Smallest multiples of a tier's (products, decode attention, prefill attention) that the card can reach."""
    gpu, model, tier = profile.gpu, profile.model, profile.tiers[name]
    bandwidth, peaks = gpu.memory_bandwidth_bytes_per_s, gpu.peak_flops_per_s
    weights_ms = model.linear_parameters * TIERS_BY_NAME[name].bytes_per_weight / bandwidth * 1e3
    products, decodes, prefills = [0.0], [0.0], [0.0]
    for tokens, ms in zip(tier.gemm_tokens.x, tier.gemm_tokens.ms, strict=True):
        computed_ms = 2 * model.linear_parameters * tokens / peaks[name] * 1e3
        products.append((max(weights_ms, computed_ms) - tier.overhead_us / 1e3) / ms)
    for attention in tier.decode_attention:
        for tokens, ms in zip(attention.context_tokens.x, attention.context_tokens.ms, strict=True):
            decodes.append(tokens * model.kv_bytes_per_token / bandwidth * 1e3 / ms)
    for pairs, ms in zip(tier.prefill_attention_pairs.x, tier.prefill_attention_pairs.ms, strict=True):
        prefills.append(pairs * model.attention_flops_per_pair / peaks["FP16"] * 1e3 / ms)
    # A profile may itself be at the limit, with the tolerance of its check.
    return min(max(products), 1.0), min(max(decodes), 1.0), min(max(prefills), 1.0)
