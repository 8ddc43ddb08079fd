"""Distributions of token counts and durations, sampled through their quantile functions.

Each value uses one uniform number, so changing a distribution changes no other draw, and truncation needs no loop.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np
from pydantic import Field, model_validator
from scipy.special import ndtr, ndtri

from llmserve_env.arrays import Array
from llmserve_env.workloads.parts import Count, Fraction, NonNegative, Part

N = TypeVar("N", int, float)

MIN_KEPT_MASS = 1e-6
"""Least share of a log-normal distribution that must fall within the bounds of `bounds: resample`."""


class Constant(Part, Generic[N]):
    """Always the same value."""

    kind: Literal["constant"]
    value: N

    @property
    def smallest(self) -> N:
        return self.value

    @property
    def largest(self) -> N:
        return self.value


class _Bounded(Part, Generic[N]):
    low: N
    high: N

    @model_validator(mode="after")
    def _ordered(self) -> _Bounded[N]:
        if self.low > self.high:
            raise ValueError(f"low must be at most high; got low {self.low} and high {self.high}")
        return self

    @property
    def smallest(self) -> N:
        return self.low

    @property
    def largest(self) -> N:
        return self.high


class Uniform(_Bounded[N], Generic[N]):
    """Equally likely between low and high, both included."""

    kind: Literal["uniform"]


class LogNormal(_Bounded[N], Generic[N]):
    """exp(normal(mu, sigma)), kept in [low, high]."""

    kind: Literal["lognormal"]
    mu: Annotated[float, Field(strict=True, ge=-50.0, le=50.0)]
    sigma: Annotated[float, Field(strict=True, gt=0.0, le=10.0)]
    bounds: Literal["clamp", "resample"] = "clamp"
    """clamp: values outside are set to the bound; resample: the distribution is conditioned on the bounds."""

    @model_validator(mode="after")
    def _bounds_fit_the_law(self) -> LogNormal[N]:
        low_mass, high_mass = self.masses()
        if self.bounds == "resample" and high_mass - low_mass < MIN_KEPT_MASS:
            raise ValueError(
                f"low {self.low} to high {self.high} contains almost none of the distribution; widen the bounds"
            )
        return self

    def masses(self) -> tuple[float, float]:
        """Probabilities of falling below low and below high."""
        with np.errstate(divide="ignore"):
            low, high = (ndtr((np.log(float(bound)) - self.mu) / self.sigma) for bound in (self.low, self.high))
        return float(low), float(high)


class Quantiles(Part, Generic[N]):
    """A table of quantiles with linear interpolation, used for the lengths and durations of traces."""

    kind: Literal["quantiles"]
    levels: tuple[Fraction, ...] = Field(min_length=2)
    values: tuple[N, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _is_a_distribution(self) -> Quantiles[N]:
        if len(self.levels) != len(self.values):
            raise ValueError(f"needs one value per level; got {len(self.levels)} levels, {len(self.values)} values")
        if self.levels[0] != 0.0 or self.levels[-1] != 1.0:
            raise ValueError(f"levels must run from 0 to 1; got {self.levels[0]} to {self.levels[-1]}")
        if any(b <= a for a, b in pairwise(self.levels)):
            raise ValueError(f"levels must strictly increase; got {list(self.levels)}")
        if any(b < a for a, b in pairwise(self.values)):
            raise ValueError(f"values must not decrease; got {list(self.values)}")
        return self

    @property
    def smallest(self) -> N:
        return self.values[0]

    @property
    def largest(self) -> N:
        return self.values[-1]


Plain: TypeAlias = Constant[N] | Uniform[N] | LogNormal[N] | Quantiles[N]
TokenDistribution = Annotated[
    Constant[Count] | Uniform[Count] | LogNormal[Count] | Quantiles[Count], Field(discriminator="kind")
]
DurationDistribution = Annotated[
    Constant[NonNegative] | Uniform[NonNegative] | LogNormal[NonNegative] | Quantiles[NonNegative],
    Field(discriminator="kind"),
]


class Band(Part):
    """Output lengths for prompts up to a given length."""

    prompt_up_to: Count | None = None
    """Longest prompt of this band; the last band has none."""
    tokens: TokenDistribution


class Conditional(Part):
    """Output lengths that depend on the length band of the prompt, as they do in production."""

    kind: Literal["conditional"]
    bands: tuple[Band, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _bands_cover_all_prompts(self) -> Conditional:
        ends = [band.prompt_up_to for band in self.bands]
        inner = [end for end in ends[:-1] if end is not None]
        if ends[-1] is not None or len(inner) != len(ends) - 1:
            raise ValueError(
                f"every band except the last needs prompt_up_to, and the last must not have it; got {ends}"
            )
        if any(b <= a for a, b in pairwise(inner)):
            raise ValueError(f"prompt_up_to must increase from band to band; got {inner}")
        return self


OutputDistribution = Annotated[
    Constant[Count] | Uniform[Count] | LogNormal[Count] | Quantiles[Count] | Conditional, Field(discriminator="kind")
]


def seconds(distribution: Plain[float], u: Array) -> Array:
    """Durations at the uniform numbers `u`."""
    match distribution:
        case Constant():
            return np.full(u.shape, float(distribution.value))
        case Uniform():
            return distribution.low + u * (distribution.high - distribution.low)
        case LogNormal():
            return _lognormal(distribution, u)
        case Quantiles():
            return np.interp(u, distribution.levels, distribution.values)


def tokens(distribution: Plain[int], u: Array) -> Array:
    """Token counts at the uniform numbers `u` in [0, 1)."""
    match distribution:
        case Uniform():
            span = distribution.high - distribution.low + 1
            return distribution.low + (u * span).astype(np.int64)
        case Constant():
            return np.full(u.shape, distribution.value, dtype=np.int64)
        case LogNormal():
            return np.rint(_lognormal(distribution, u)).astype(np.int64)
        case Quantiles():
            return np.rint(np.interp(u, distribution.levels, distribution.values)).astype(np.int64)


def output_tokens(distribution: Plain[int] | Conditional, u: Array, prompt_tokens: Array) -> Array:
    """Output lengths for these prompts at the uniform numbers `u`."""
    if not isinstance(distribution, Conditional):
        return tokens(distribution, u)
    ends = np.array([band.prompt_up_to for band in distribution.bands[:-1]], dtype=np.int64)
    band_of = np.searchsorted(ends, prompt_tokens)
    result = np.empty(u.shape, dtype=np.int64)
    for i, band in enumerate(distribution.bands):
        rows = np.flatnonzero(band_of == i)
        result[rows] = tokens(band.tokens, u[rows])
    return result


def _lognormal(law: LogNormal[Any], u: Array) -> Array:
    if law.bounds == "resample":
        low_mass, high_mass = law.masses()
        u = low_mass + u * (high_mass - low_mass)
    values: Array = np.exp(law.mu + law.sigma * ndtri(u))
    return np.clip(values, law.low, law.high)
