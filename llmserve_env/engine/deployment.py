"""A deployment: replicas of one model on one GPU type, with the limits an engine is started with."""

from __future__ import annotations

from dataclasses import dataclass

from llmserve_env.engine.costs import NO_HOST, GpuCosts, HostCosts
from llmserve_env.engine.fleet import Pool

MAX_CLASSES = 8
MAX_RUNNING = 1024
"""Slots of a replica's running batch."""
MAX_TOKEN_BUDGET = 16_384


@dataclass(frozen=True, slots=True)
class Deployment:
    """What an operator fixes at launch; the serving knobs move within these limits."""

    costs: GpuCosts
    num_replicas: int = 1
    num_prefill_replicas: int = 0
    """Dedicated prefill replicas that `prefill_decode_split` brings into service; 0 masks the knob."""
    memory_limit_bytes: int = 40_000_000_000
    activation_reserve_bytes: int = 0
    """Set aside before the KV pool is sized, as an engine's start-up profiling run does."""
    block_tokens: int = 16
    max_running: int = 512
    token_budget: int = 2048
    max_model_len: int = 16_384
    long_prefill_threshold: int = 0
    chunked_prefill: bool = True
    reserve_full_prompt: bool = True
    watermark_fraction: float = 0.0
    prefix_caching: bool = False
    async_scheduling: bool = False
    draft_lookahead: bool = True
    waiting_room: tuple[int, ...] = (1_000_000,) * MAX_CLASSES
    """Fresh waiting requests allowed per class and replica; the next one is rejected."""
    bring_up_ps: int = 0
    restart_overhead_ps: int = 0
    warm_up_at_cap: bool = False
    """Whether a replica needs memory for the logits of `batch_cap` sequences, as vLLM does to warm up its sampler.

    vLLM stops with "CUDA out of memory occurred when warming up sampler with N dummy requests. Please try lowering
    `max_num_seqs` or `gpu_memory_utilization`" (vllm/v1/worker/gpu_model_runner.py, `_dummy_sampler_run`).
    """
    host: HostCosts = NO_HOST
    graph_max_tokens: int = 512
    """Largest iteration that was captured as a CUDA graph; larger ones are launched kernel by kernel."""
    pools: tuple[Pool, ...] = ()
    """A fleet that changes; `num_replicas` then counts the replicas of all pools."""
    affinity_slack: int = -1
    """How much more load than the least loaded replica a session's home may have and still be chosen; -1: no homes."""
    num_blocks_override: int | None = None
    """Usable KV blocks at a budget of 1.0, when known; otherwise they follow from memory."""

    def __post_init__(self) -> None:
        checks = (
            (self.num_replicas >= 1, "num_replicas must be at least 1", self.num_replicas),
            (self.num_prefill_replicas >= 0, "num_prefill_replicas must be 0 or more", self.num_prefill_replicas),
            (
                self.block_tokens & (self.block_tokens - 1) == 0 < self.block_tokens,
                "block_tokens must be a power of two",
                self.block_tokens,
            ),
            (
                1 <= self.max_running <= MAX_RUNNING,
                f"max_running must be in 1..{MAX_RUNNING}",
                self.max_running,
            ),
            (
                1 <= self.token_budget <= MAX_TOKEN_BUDGET,
                f"token_budget must be in 1..{MAX_TOKEN_BUDGET}",
                self.token_budget,
            ),
            (self.max_model_len >= 2, "max_model_len must be at least 2", self.max_model_len),
            (
                self.chunked_prefill or self.token_budget >= self.max_model_len,
                "without chunked prefill token_budget must reach max_model_len",
                self.token_budget,
            ),
            (0.0 <= self.watermark_fraction < 1.0, "watermark_fraction must be in [0, 1)", self.watermark_fraction),
            (
                not self.pools or self.num_replicas == sum(pool.max_replicas for pool in self.pools),
                "num_replicas must count the replicas of all pools",
                self.num_replicas,
            ),
            (
                not self.pools or self.num_prefill_replicas == 0,
                "with pools num_prefill_replicas must be 0; give a pool the role prefill",
                self.num_prefill_replicas,
            ),
            (
                all(-1 <= pool.partner < len(self.pools) for pool in self.pools),
                "partner must be the number of a pool",
                [pool.partner for pool in self.pools],
            ),
            (self.graph_max_tokens >= 0, "graph_max_tokens must be 0 or more", self.graph_max_tokens),
            (
                1 <= len(self.waiting_room) <= MAX_CLASSES,
                f"waiting_room needs 1 to {MAX_CLASSES} classes",
                self.waiting_room,
            ),
            (
                self.kv_bytes_at_full_budget > 0,
                "memory_limit_bytes leaves no room for a KV pool beside the weights",
                self.memory_limit_bytes,
            ),
        )
        for ok, rule, value in checks:
            if not ok:
                raise ValueError(f"{rule}; got {value}")

    @property
    def kv_bytes_at_full_budget(self) -> int:
        """The smallest pool over tiers, with the draft model loaded."""
        if self.num_blocks_override is not None:
            return self.num_blocks_override * self.block_bytes
        weights = max(tier.weight_bytes for tier in self.costs.tiers.values())
        return self.memory_limit_bytes - weights - self.costs.draft_bytes - self.activation_reserve_bytes

    @property
    def block_bytes(self) -> int:
        return self.block_tokens * self.costs.kv_bytes_per_token

    @property
    def max_num_replicas(self) -> int:
        return self.num_replicas + self.num_prefill_replicas

    def num_blocks(self, kv_budget_fraction: float, tier: int, speculating: bool) -> int:
        """Usable KV blocks of one replica."""
        if self.num_blocks_override is not None:
            return int(kv_budget_fraction * self.num_blocks_override)
        held = self.costs.tiers[tier].weight_bytes + (self.costs.draft_bytes if speculating else 0)
        available = self.memory_limit_bytes - held - self.activation_reserve_bytes
        return int(kv_budget_fraction * available) // self.block_bytes
