"""What an iteration costs on one GPU: the contract between latency profiles and the engine.

Every time is an integer number of picoseconds, so that sums never round and the compiled engine
can jump over iterations in closed form. `docs/engine.md` (Cost model) states the formula.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

MAX_SPECULATION_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Curve:
    """A piecewise-linear curve through knots (x, ps), linear beyond the last one; 0 at x = 0 by definition."""

    x: tuple[int, ...]
    ps: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.x) < 2 or len(self.x) != len(self.ps):
            raise ValueError(
                f"a curve needs two or more knots, x and ps of one length; got {len(self.x)} and {len(self.ps)}"
            )
        if any(b <= a for a, b in zip(self.x, self.x[1:], strict=False)):
            raise ValueError(f"curve knots must increase strictly; got x = {self.x}")
        if any(b < a for a, b in zip(self.ps, self.ps[1:], strict=False)) or self.ps[0] < 0:
            raise ValueError(f"curve times must be non-negative and never fall; got ps = {self.ps}")


@dataclass(frozen=True, slots=True)
class TierCosts:
    """One quantization tier of one model on one GPU."""

    overhead_ps: int
    per_sequence_ps: int
    per_decode_token_ps: int
    per_prefill_token_ps: int
    gemm: Curve
    """Over tokens in the iteration: all linear layers and the LM head."""
    decode_attention: tuple[Curve, ...]
    """Index q-1 for q = 1..9 query tokens per sequence; over total context tokens of decoding sequences."""
    prefill_attention: Curve
    """Over attended (query, key) pairs: the sum of n*past + n*(n+1)/2 over prefill chunks."""
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class DraftCosts:
    """The draft model: one forward pass per proposed token."""

    overhead_ps: int
    gemm: Curve
    """Over tokens in the draft's forward pass."""
    per_context_token_ps: int
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class HostTime:
    """Host time for one batch: a constant plus a part per sequence."""

    base_ps: int = 0
    per_sequence_ps: int = 0


NO_TIME = HostTime()


@dataclass(frozen=True, slots=True)
class HostCosts:
    """Time spent by the CPU beside a GPU. It is a property of the machine, not of the GPU; by default it is zero."""

    front_end_ps: int = 0
    """From a client's call until the scheduler can see the request."""
    answer_ps: int = 0
    """From the engine's output until the client has it."""
    full_graph: HostTime = NO_TIME
    """Scheduling and launching an iteration of decodes alone, within the largest captured graph."""
    piecewise_graph: HostTime = NO_TIME
    """Scheduling and launching an iteration with prefill tokens, within the largest captured graph."""
    no_graph: HostTime = NO_TIME
    """Scheduling and launching an iteration above the largest captured graph, kernel by kernel."""
    per_admission_ps: int = 0
    """Added to these times for every request that the iteration admits."""
    output: HostTime = NO_TIME
    """Processing the output of an iteration."""
    sampling: HostTime = NO_TIME
    """GPU time that an engine adds to the model's: sampling, and preparing its inputs on the GPU."""


NO_HOST = HostCosts()
"""A host that takes no time, so that the GPU alone sets the pace."""


@dataclass(frozen=True, slots=True)
class GpuCosts:
    """One model on one GPU, as the engine needs it."""

    tiers: Mapping[int, TierCosts] = field(hash=False)
    """By the number of the tier (`engine.tiers`); replicas start with the first one."""
    draft: DraftCosts | None
    """None if no draft model is known; speculation is then off."""
    memory_bytes: int
    kv_bytes_per_token: int
    activation_bytes_per_token: int
    logits_bytes_per_sequence: int
    weights_load_bytes_per_s: int
    kv_transfer_bytes_per_s: int
    price_usd_per_hour: float

    @property
    def first_tier(self) -> int:
        """The tier that replicas start with."""
        return next(iter(self.tiers))

    @property
    def draft_bytes(self) -> int:
        """Weights of the draft model."""
        return 0 if self.draft is None else self.draft.weight_bytes

    def serving(self, tier: int) -> GpuCosts:
        """These costs with this tier alone, so that replicas start with it instead of loading it first."""
        return replace(self, tiers={tier: self.tiers[tier]})
