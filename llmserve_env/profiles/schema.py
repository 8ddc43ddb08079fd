"""The profile file: one GPU, one model, its quantization tiers, a draft model, and the source of every number.

Times are milliseconds or microseconds, as the field's name says; `costs()` turns them into integer picoseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from llmserve_env.engine.costs import MAX_SPECULATION_DEPTH, GpuCosts
from llmserve_env.engine.tiers import TIER_NAMES

FORMAT_VERSION = 1
MAX_QUERY_TOKENS = MAX_SPECULATION_DEPTH + 1

if TYPE_CHECKING:
    from llmserve_env.profiles.architectures import Architecture

    TierName = str
else:
    TierName = Literal[TIER_NAMES]
Origin = Literal["measured", "composed", "derived"]
"""measured: whole iterations timed; composed: summed from kernel timings; derived: computed from the roofline."""
Time = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TimeCurve(_Part):
    """Times over a count: piecewise linear, never decreasing, and zero at zero by definition."""

    x: tuple[int, ...] = Field(min_length=2)
    ms: tuple[Time, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _rising(self) -> TimeCurve:
        if len(self.x) != len(self.ms):
            raise ValueError(f"a curve needs one time per knot; got {len(self.x)} knots and {len(self.ms)} times")
        if self.x[0] < 0 or any(b <= a for a, b in zip(self.x, self.x[1:], strict=False)):
            raise ValueError(f"knots must be non-negative and strictly increasing; got {list(self.x)}")
        for i, (a, b) in enumerate(zip(self.ms, self.ms[1:], strict=False)):
            if b < a:
                raise ValueError(
                    f"times must not decrease, but {b} ms at {self.x[i + 1]} is less than {a} ms at {self.x[i]}: "
                    "smooth the measurements (the fit does) before writing a profile"
                )
        return self


class DecodeAttention(_Part):
    """Attention of decoding sequences over their total context, at one number of query tokens per sequence."""

    query_tokens: int = Field(ge=1, le=MAX_QUERY_TOKENS)
    origin: Origin
    context_tokens: TimeCurve


class FitError(_Part):
    """Relative error of the tier on points that were left out of its fit."""

    points: Count
    median_pct: Time
    p95_pct: Time
    max_pct: Time


class Tier(_Part):
    """One quantization tier."""

    origin: Origin
    kernel: str = Field(min_length=1, description="What multiplies the matrices in this tier, and how it was timed.")
    overhead_us: Time
    per_sequence_us: Time
    per_decode_token_us: Time
    per_prefill_token_us: Time
    gemm_tokens: TimeCurve
    decode_attention: tuple[DecodeAttention, ...] = Field(min_length=1)
    prefill_attention_pairs: TimeCurve
    weight_bytes: Count
    held_out: FitError | None = None

    @model_validator(mode="after")
    def _starts_at_one_query(self) -> Tier:
        queries = [a.query_tokens for a in self.decode_attention]
        if queries != sorted(set(queries)) or queries[0] != 1:
            raise ValueError(f"decode_attention must be ordered by query_tokens and start at 1; got {queries}")
        return self


class Draft(_Part):
    """The draft model of speculative decoding: one forward pass per proposed token."""

    name: str
    origin: Origin
    overhead_us: Time
    gemm_tokens: TimeCurve
    per_context_token_us: Time
    weight_bytes: Count


class Gpu(_Part):
    """The card: sizes, peaks that times are checked against, price and power."""

    name: str
    memory_bytes: Count
    memory_bandwidth_bytes_per_s: Count
    peak_flops_per_s: dict[TierName, Positive]
    weights_load_bytes_per_s: Count
    kv_transfer_bytes_per_s: Count
    price_usd_per_hour: Time
    power_w: Positive


class Model(_Part):
    """The target model, as far as an iteration's time and memory depend on it."""

    name: str
    linear_parameters: Count
    attention_flops_per_pair: Count
    kv_bytes_per_token: Count
    activation_bytes_per_token: Count
    logits_bytes_per_sequence: Count
    layers: Count | None = None
    kernels_per_layer: Count | None = None
    """Kernels that an engine launches one by one where no graph is captured."""

    @classmethod
    def of(cls, architecture: Architecture) -> Model:
        """The facts of a plain decoder on one GPU."""
        return cls(
            name=architecture.name,
            linear_parameters=architecture.linear_parameters,
            attention_flops_per_pair=architecture.attention_flops_per_pair,
            kv_bytes_per_token=architecture.kv_bytes_per_token,
            activation_bytes_per_token=architecture.activation_bytes_per_token,
            logits_bytes_per_sequence=architecture.logits_bytes_per_sequence,
        )


class Parallelism(_Part):
    """How one replica is spread over GPUs."""

    tensor_parallel: Count = 1
    pipeline_parallel: Count = 1
    expert_parallel: Count = 1
    data_parallel_attention: Count = 1

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel_attention


class FrontEnd(_Part):
    """Time outside iterations, as clients see it. The engine does not simulate it; comparisons with clients add it."""

    request_ms: Time = Field(description="From the client's sending to the scheduler: HTTP, tokenizer, queues.")
    token_ms: Time = Field(description="From the end of an iteration to the client: detokenizer, queues, HTTP.")


class Provenance(_Part):
    """The source of the numbers."""

    source: str = Field(min_length=1)
    measured_by: str = Field(min_length=1)
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    licence: str = Field(min_length=1)
    software: dict[str, str] = {}
    notes: tuple[str, ...] = ()


class Profile(_Part):
    """A latency profile; `load_profile` reads one by name."""

    format_version: Literal[1]
    name: str = Field(pattern=r"^[a-z0-9.-]+$")
    gpu: Gpu
    model: Model
    tiers: dict[TierName, Tier] = Field(min_length=1)
    """The first is the one that replicas start with."""
    draft: Draft | None = None
    front_end: FrontEnd | None = None
    parallelism: Parallelism | None = None
    """None for one GPU. Times are those of a replica, bytes those of one of its GPUs."""
    kv_cache: Literal["fp16", "fp8"] | None = None
    """Precision of keys and values; None for 16 bits."""
    provenance: Provenance

    @model_validator(mode="after")
    def _plausible(self) -> Profile:
        from llmserve_env.profiles.checks import implausibilities

        problems = implausibilities(self)
        if problems:
            more = f"; and {len(problems) - 1} more problems of this kind" if len(problems) > 1 else ""
            raise ValueError(problems[0] + more)
        return self

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return 1 if self.parallelism is None else self.parallelism.gpus

    def costs(self) -> GpuCosts:
        """The profile in the engine's format: integer picoseconds, one attention curve per query count 1..9."""
        from llmserve_env.profiles.conversion import gpu_costs

        return gpu_costs(self)
