"""Iteration cost with linear terms: of the recorded virtual-clock runs, and fitted to the recorded real runs."""

from __future__ import annotations

from dataclasses import dataclass

from llmserve_env.engine.costs import MAX_SPECULATION_DEPTH, Curve, DraftCosts, GpuCosts, TierCosts

# Recorded runs size their pool in blocks, so bytes only have to be large enough never to bind.
_UNBOUNDED_BYTES = 2**60


@dataclass(frozen=True, slots=True)
class StepCost:
    """Picoseconds per iteration and per unit of its work."""

    overhead_ps: int
    per_sequence_ps: int
    per_decode_token_ps: int
    per_prefill_token_ps: int
    per_context_token_ps: int
    """Per token of context of a decode item."""
    per_prefill_pair_ps: int
    """Per attended (query, key) pair of a prefill item."""

    def gpu_costs(self) -> GpuCosts:
        """The same cost as the engine takes it; a draft is free, loading and transfers do not occur."""
        tier = TierCosts(
            overhead_ps=self.overhead_ps,
            per_sequence_ps=self.per_sequence_ps,
            per_decode_token_ps=self.per_decode_token_ps,
            per_prefill_token_ps=self.per_prefill_token_ps,
            gemm=Curve((0, 1), (0, 0)),
            decode_attention=(Curve((0, 1), (0, self.per_context_token_ps)),) * (MAX_SPECULATION_DEPTH + 1),
            prefill_attention=Curve((0, 1), (0, self.per_prefill_pair_ps)),
            weight_bytes=0,
        )
        return GpuCosts(
            tiers=(tier, tier, tier),
            draft=DraftCosts(overhead_ps=0, gemm=Curve((0, 1), (0, 0)), per_context_token_ps=0, weight_bytes=0),
            memory_bytes=_UNBOUNDED_BYTES,
            kv_bytes_per_token=1,
            activation_bytes_per_token=0,
            logits_bytes_per_sequence=0,
            weights_load_bytes_per_s=1,
            kv_transfer_bytes_per_s=1,
            price_usd_per_hour=0.0,
        )
