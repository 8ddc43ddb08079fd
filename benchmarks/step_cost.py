"""Linear iteration costs: given by recorded virtual-clock runs, or fitted to recorded real runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from llmserve_env.engine.costs import MAX_SPECULATION_DEPTH, Curve, DraftCosts, GpuCosts, TierCosts

if TYPE_CHECKING:
    from benchmarks.recorded_runs import RecordedSteps

PS_PER_S = 10**12
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
        """The same cost in the engine's format; drafts are free, and loading and transfers do not occur."""
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
            tiers={0: tier},
            draft=DraftCosts(overhead_ps=0, gemm=Curve((0, 1), (0, 0)), per_context_token_ps=0, weight_bytes=0),
            memory_bytes=_UNBOUNDED_BYTES,
            kv_bytes_per_token=1,
            activation_bytes_per_token=0,
            logits_bytes_per_sequence=0,
            weights_load_bytes_per_s=1,
            kv_transfer_bytes_per_s=1,
            price_usd_per_hour=0.0,
        )


def fit_step_cost(steps: RecordedSteps) -> StepCost:
    """The step cost of one real run: non-negative least squares over its recorded iterations.

    Errors count relative to the iteration's length, because the noise of a CPU clock grows with it,
    and the coefficients are scaled so that all iterations together take as long as they did.
    """
    work = np.column_stack(
        [
            np.ones(len(steps.num_sequences)),
            steps.num_sequences,
            steps.decode_tokens,
            steps.prefill_tokens,
            steps.decode_context_tokens,
            steps.prefill_pairs,
        ]
    ).astype(np.float64)
    seconds = _iteration_seconds(steps)
    first_estimate = work @ _non_negative_fit(work, seconds, np.ones_like(seconds))
    coefficients = _non_negative_fit(work, seconds, 1.0 / first_estimate)
    coefficients *= seconds.sum() / (work @ coefficients).sum()
    return StepCost(*(round(float(coefficient) * PS_PER_S) for coefficient in coefficients))


def _iteration_seconds(steps: RecordedSteps) -> NDArray[np.float64]:
    """From the end of one iteration to the end of the next, so that scheduling and bookkeeping are part of it."""
    lead_s = np.append(0.0, steps.scheduled_at_s[1:] - steps.ended_at_s[:-1])
    busy_before = steps.num_running_before > 0
    if not busy_before.any():
        raise ValueError(
            "every recorded iteration starts on an idle engine; fitting a step cost needs consecutive iterations"
        )
    # After idle time an iteration starts with its scheduling, which takes the usual time.
    lead_s = np.where(busy_before, lead_s, np.median(lead_s[busy_before]))
    return lead_s + steps.ended_at_s - steps.scheduled_at_s


def _non_negative_fit(
    work: NDArray[np.float64], seconds: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    # Columns of one magnitude keep the solver's tolerance meaningful; an absent kind of work has an all-zero column.
    magnitudes = np.maximum(work.max(axis=0), 1.0)
    coefficients, _ = nnls(work / magnitudes * weights[:, None], seconds * weights)
    return np.asarray(coefficients / magnitudes, dtype=np.float64)
