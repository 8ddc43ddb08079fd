"""Values between grid points: linear over batch and KV budget, nearest over depth and tier, a bucket by its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import RegularGridInterpolator

from llmserve_env.arrays import Array
from llmserve_env.backends.table.grid import MEASURES, Grid, Measures
from llmserve_env.backends.table.reading import arrange, read_columns
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.errors import ConfigError, InvalidActionError
from llmserve_env.rng import JITTER_STREAM

JITTER = 0.05
"""Standard deviation of the noise on latencies, as a fraction of them."""
_TTFT_P50, _TTFT_P99, _TPOT = map(MEASURES.index, ("ttft_p50_ms", "ttft_p99_ms", "tpot_ms"))
_TPS, _MEMORY = map(MEASURES.index, ("tps", "gpu_mem_gb"))
_WINDOW_KEY = 1_000
"""First part of the keys of jitter streams; workloads use other keys of the same stream."""


def jitter_stream(seed: int, step: int) -> np.random.Generator:
    """The noise of one window: it depends on seed and step alone, not on what was drawn before."""
    sequence = np.random.SeedSequence(seed, spawn_key=(JITTER_STREAM, _WINDOW_KEY, step))
    return np.random.Generator(np.random.Philox(sequence))


@dataclass(frozen=True, slots=True)
class TableWindow(Measures):
    """What the table says about one configuration, per replica."""

    is_out_of_memory: bool
    """Whether `gpu_mem_gb` exceeds the card's memory."""


@dataclass(frozen=True, slots=True)
class BatchCurve:
    """Measures over the batch size, the other knobs fixed: straight lines between the table's batch sizes."""

    batch_size: Array
    measures: Array
    memory_limit_gb: float

    def at(self, batch_size: float, jitter: tuple[float, float] = (1.0, 1.0)) -> TableWindow:
        """Measures of a batch within the table's range; the jitter multiplies (TTFT, time per token)."""
        sizes = self.batch_size
        if not sizes[0] <= batch_size <= sizes[-1]:
            raise InvalidActionError(f"batch_size must be from {sizes[0]:g} to {sizes[-1]:g}; got {batch_size:g}")
        i = min(int(np.searchsorted(sizes, batch_size, side="right")) - 1, len(sizes) - 2)
        part = (batch_size - sizes[i]) / (sizes[i + 1] - sizes[i])
        measures = [float(v) for v in (1.0 - part) * self.measures[i] + part * self.measures[i + 1]]
        measures[_TTFT_P50] *= jitter[0]
        measures[_TTFT_P99] *= jitter[0]
        measures[_TPOT] *= jitter[1]
        named = dict(zip(MEASURES, measures, strict=True))
        return TableWindow(**named, is_out_of_memory=named["gpu_mem_gb"] > self.memory_limit_gb)


class LookupTable:
    """A complete grid of measures. Make one with `LookupTable.load`."""

    def __init__(self, grid: Grid, measures: Array, memory_limit_gb: float, metadata: dict[str, Any]) -> None:
        self.grid = grid
        self.measures = measures
        self.memory_limit_gb = memory_limit_gb
        self.metadata = metadata
        # The axes without interpolation are part of the values, so one interpolator is enough.
        self._interpolate = RegularGridInterpolator((grid.batch_size, grid.kv_budget), measures, method="linear")

    @classmethod
    def load(cls, path: str | Path, memory_limit_gb: float | None = None) -> LookupTable:
        """Read and check a parquet table; the card's memory is the argument, else that of the file's metadata."""
        path = Path(path)
        columns, metadata = read_columns(path)
        grid, measures = arrange(path, columns)
        limit_gb = memory_limit_gb if memory_limit_gb is not None else metadata.get("memory_limit_gb")
        if limit_gb is None or not limit_gb > 0.0:
            raise ConfigError(
                f"{path}: what fits depends on the card's memory, which must be above 0; got {limit_gb}: "
                "pass memory_limit_gb"
            )
        return cls(grid, measures, float(limit_gb), metadata)

    def over_batch(self, kv_budget: float, spec_length: int, quant_tier: int, prompt_tokens: float) -> BatchCurve:
        """All batch sizes of one KV budget, nearest depth, nearest tier and prompt bucket."""
        buckets = self._over_batch_and_bucket(kv_budget, spec_length, quant_tier)
        return self._curve(buckets[:, self.bucket(prompt_tokens)])

    def over_mix(self, kv_budget: float, spec_length: int, quant_tier: int, prompt_tokens: Array) -> BatchCurve:
        """The same for a batch of prompts of several lengths, each bucket by its share of them.

        GPU time per token is averaged (so `tps` is a harmonic mean), time per token and cost too; memory is the
        largest; TTFT is that of the bucket in which the median, or the 99th percentile, of the prompts lies.
        """
        buckets = self._over_batch_and_bucket(kv_budget, spec_length, quant_tier)
        bounds = self.grid.prompt_len_bucket
        places = np.minimum(np.searchsorted(bounds, prompt_tokens, side="left"), len(bounds) - 1)
        counts = np.bincount(places, minlength=len(bounds))
        shares = counts / counts.sum()
        measures = np.einsum("p,bpf->bf", shares, buckets)
        measures[:, _TPS] = 1.0 / ((1.0 / buckets[:, :, _TPS]) @ shares)
        measures[:, _MEMORY] = buckets[:, counts > 0, _MEMORY].max(axis=1)
        for column, quantile in ((_TTFT_P50, 50), (_TTFT_P99, 99)):
            measures[:, column] = buckets[:, np.percentile(places, quantile, method="inverted_cdf"), column]
        # The two may come from different buckets, and a longer prompt may be the quicker one by chance.
        measures[:, _TTFT_P99] = np.maximum(measures[:, _TTFT_P99], measures[:, _TTFT_P50])
        return self._curve(measures)

    def _curve(self, measures: Array) -> BatchCurve:
        return BatchCurve(np.array(self.grid.batch_size, float), measures, self.memory_limit_gb)

    def _over_batch_and_bucket(self, kv_budget: float, spec_length: int, quant_tier: int) -> Array:
        budgets = self.grid.kv_budget
        if not budgets[0] <= kv_budget <= budgets[-1]:
            raise InvalidActionError(f"kv_budget must be from {budgets[0]:g} to {budgets[-1]:g}; got {kv_budget:g}")
        at = np.array([(size, kv_budget) for size in self.grid.batch_size])
        rest = (nearest(self.grid.spec_length, spec_length), nearest(self.grid.quant_tier, quant_tier))
        measures: Array = self._interpolate(at)[:, *rest]
        return measures

    def bucket(self, prompt_tokens: float) -> int:
        """Index of the first bucket whose bound this prompt does not exceed; the last one takes all longer ones."""
        if not prompt_tokens > 0:
            raise InvalidActionError(f"prompt_tokens must be above 0; got {prompt_tokens}")
        bounds = self.grid.prompt_len_bucket
        return min(int(np.searchsorted(bounds, prompt_tokens, side="left")), len(bounds) - 1)

    def lookup(self, knobs: ServingKnobs, prompt_tokens: float, rng: np.random.Generator | None = None) -> TableWindow:
        """Measures of one configuration, with noise on the latencies when given a generator.

        `prefill_decode_split` and `priority_routing` have no column and change nothing.
        """
        curve = self.over_batch(
            knobs.kv_budget_fraction, knobs.speculation_depth, knobs.quantization_tier, prompt_tokens
        )
        return curve.at(knobs.batch_cap, draw_jitter(rng) if rng is not None else (1.0, 1.0))


def draw_jitter(rng: np.random.Generator) -> tuple[float, float]:
    """Factors of (TTFT, time per token); both TTFT percentiles share theirs, so they keep their order."""
    ttft, tpot = 1.0 + JITTER * rng.standard_normal(2)
    return float(ttft), float(tpot)


def nearest(values: Sequence[float], wanted: float) -> int:
    """Index of the value nearest to the wanted one, the lower of two equally near."""
    return int(np.argmin(np.abs(np.array(values, float) - wanted)))
