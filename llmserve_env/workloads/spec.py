"""The description of a workload: classes of service, and sources that send requests of several kinds.

```yaml
horizon_s: 200
classes:
  - {name: interactive, ttft_slo_ms: 200, patience_s: 10}
sources:
  - tenant: chat
    arrivals: {kind: poisson, rate_rps: 10}
    kinds:
      - share: 1.0
        class: interactive
        prompt_tokens: {kind: uniform, low: 64, high: 128}
        output_tokens: {kind: lognormal, mu: 5.9, sigma: 0.6, low: 16, high: 2048}
        acceptance: {base: 0.8}
```
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from llmserve_env.workloads.arrivals import Arrivals, RateSeries, peak_rps
from llmserve_env.workloads.distributions import DurationDistribution, OutputDistribution, TokenDistribution
from llmserve_env.workloads.parts import Count, Finite, Fraction, Name, NonNegative, Part, Positive, Share
from llmserve_env.workloads.problems import config_error

MAX_CLASSES = 8
MAX_TURNS = 256
MAX_REQUESTS = 20_000_000
"""Largest number of rows of a table; a table of this size takes about 2 GB."""
SHARE_TOLERANCE = 1e-6
_OPTIONAL_SLOS = ("tpot_slo_ms", "e2e_slo_ms", "slo_share", "slo_percentiles")
_PERCENTILE = re.compile(r"(ttft|tpot|e2e)_(?:mean|p(\d{1,2}(?:\.\d+)?))_ms")


def parse_percentile(name: str) -> tuple[str, float | None] | None:
    """Latency and percentile (None for the mean) of a name such as `ttft_p99_ms`; None for any other name."""
    found = _PERCENTILE.fullmatch(name)
    if found is None or (found[2] is not None and float(found[2]) <= 0.0):
        return None
    return found[1], None if found[2] is None else float(found[2])


class ServiceClass(Part):
    """The SLO of a class of requests, and how long its clients wait."""

    name: Name
    ttft_slo_ms: Positive | None
    """Promised time to first token; null for no promise."""
    tpot_slo_ms: Positive | None = None
    """Promised time per output token after the first."""
    e2e_slo_ms: Positive | None = None
    """Promised time to the last token."""
    slo_share: Share | None = None
    """Share of requests that must be within these three; the command's target when not given."""
    slo_percentiles: tuple[tuple[str, Positive], ...] = ()
    """Promises about all requests of the class: a mapping such as {ttft_p99_ms: 2000, tpot_mean_ms: 40}."""
    patience_s: Positive | None = None
    """How long a client waits for its first token; null for no limit."""

    @field_validator("slo_percentiles", mode="before")
    @classmethod
    def _are_known(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            raise ValueError(f"must be a mapping such as {{ttft_p99_ms: 2000}}; got {type(given).__name__}")
        for name in map(str, given):
            if parse_percentile(name) is None:
                raise ValueError(
                    f"unknown {name!r}; allowed: ttft, tpot or e2e, then a percentile or mean, as in ttft_p99_ms, "
                    "tpot_mean_ms, e2e_p99.9_ms"
                )
        return tuple((str(name), limit_ms) for name, limit_ms in given.items())

    @model_serializer(mode="wrap")
    def _without_unset_promises(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Promises that are not made are not written: digests of tasks do not depend on fields they do not use."""
        data: dict[str, Any] = serialise(self)
        data["slo_percentiles"] = dict(self.slo_percentiles)
        return {name: value for name, value in data.items() if name not in _OPTIONAL_SLOS or value}


class Acceptance(Part):
    """Probability that a draft token is accepted: a base, a slope over the prompt length, and a slow drift.

    base + per_prompt_doubling · log2(prompt / reference) + drift_amplitude · sin(2π(t / drift_period_s + phase)),
    with a phase that the seed chooses per source.
    """

    base: Fraction
    per_prompt_doubling: Finite = 0.0
    reference_prompt_tokens: Count = 128
    drift_amplitude: NonNegative = 0.0
    drift_period_s: Positive = 60.0

    def without_drift(self, prompt_tokens: float) -> float:
        """Centre of the drift for this prompt length."""
        return self.base + self.per_prompt_doubling * math.log2(prompt_tokens / self.reference_prompt_tokens)


class RequestKind(Part):
    """One shape of request."""

    share: Fraction
    """Share of the source's requests, or of its sessions if it has any."""
    class_name: Name = Field(alias="class")
    prompt_tokens: TokenDistribution
    """Prompt length, without the shared prefix of a session."""
    output_tokens: OutputDistribution
    """Output length, cut to what `max_total_tokens` leaves after the prompt, as a context window does."""
    acceptance: Acceptance


class Sessions(Part):
    """Conversations: each arrival starts one, and each turn sends the whole conversation so far plus new tokens.

    A session ends early when its next prompt would leave no room for an answer within `max_total_tokens`.
    """

    turns: TokenDistribution
    think_s: DurationDistribution
    """From the arrival of one turn to the arrival of the next."""
    user_tokens: TokenDistribution | None = None
    """New tokens of every turn after the first; distributed like a first prompt by default."""
    prefix_tokens: int = Field(default=0, strict=True, ge=0)
    """System prompt before the first turn, shared by the sessions of a prefix group."""
    prefix_groups: Count = 1
    history_s: int = Field(default=0, strict=True, ge=0)
    """Sessions that started up to this long before the episode are under way at its start."""

    @model_validator(mode="after")
    def _turns_in_range(self) -> Sessions:
        if self.turns.largest > MAX_TURNS:
            raise ValueError(f"turns must be at most {MAX_TURNS}; got up to {self.turns.largest}")
        return self


class SourceSpec(Part):
    """Requests of one tenant that follow one arrival process."""

    tenant: Name
    arrivals: Arrivals
    kinds: tuple[RequestKind, ...] = Field(min_length=1)
    sessions: Sessions | None = None

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> SourceSpec:
        total = sum(kind.share for kind in self.kinds)
        if abs(total - 1.0) > SHARE_TOLERANCE:
            raise ValueError(f"the shares of kinds must sum to 1; got {total:.6g}")
        return self

    @property
    def prefix_tokens(self) -> int:
        """Shared tokens before every first prompt."""
        return self.sessions.prefix_tokens if self.sessions else 0


class WorkloadSpec(Part):
    """A whole workload: `sample` draws its requests, `schedule` gives the expected traffic of a seed."""

    horizon_s: Count = 200
    classes: tuple[ServiceClass, ...] = Field(min_length=1, max_length=MAX_CLASSES)
    """In order of urgency: the index is the priority."""
    sources: tuple[SourceSpec, ...] = Field(min_length=1)
    max_total_tokens: int = Field(default=16_384, strict=True, ge=2)
    """Largest sum of prompt and output."""
    rate_scale: Positive = 1.0
    """Multiplies every rate, to fit one description to deployments of different sizes."""

    @model_validator(mode="after")
    def _is_consistent(self) -> WorkloadSpec:
        findings = [*self._class_findings(), *self._size_findings()]
        for i, source in enumerate(self.sources):
            findings += _series_findings(f"sources[{i}].arrivals", source, self.horizon_s)
            for j, kind in enumerate(source.kinds):
                findings += _kind_findings(f"sources[{i}].kinds[{j}]", self, source, kind)
        if findings:
            raise ValueError("; ".join(findings))
        return self

    def _class_findings(self) -> list[str]:
        names = self.class_names
        repeated = sorted({name for name in names if names.count(name) > 1})
        return [f"classes must have different names; {name!r} is repeated" for name in repeated]

    def _size_findings(self) -> list[str]:
        turns = [source.sessions.turns.largest if source.sessions else 1 for source in self.sources]
        rates = [peak_rps(source.arrivals) * n for source, n in zip(self.sources, turns, strict=True)]
        most = sum(rates) * self.rate_scale * self.horizon_s
        if most <= MAX_REQUESTS:
            return []
        return [f"horizon_s at the peak rates allows {most:.3g} requests; at most {MAX_REQUESTS:,} are possible"]

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes in order of priority."""
        return tuple(service.name for service in self.classes)

    @property
    def tenants(self) -> tuple[str, ...]:
        """Tenants in order of first appearance; a request refers to its tenant by this index."""
        return tuple(dict.fromkeys(source.tenant for source in self.sources))


def parse_workload(data: Mapping[str, Any], where: str = "workload") -> WorkloadSpec:
    """A validated workload; a `ConfigError` names every invalid field below `where` and its allowed values."""
    try:
        return WorkloadSpec.model_validate(data)
    except ValidationError as error:
        raise config_error(error, data, where) from error


def _series_findings(path: str, source: SourceSpec, horizon_s: int) -> list[str]:
    series = source.arrivals
    if not isinstance(series, RateSeries) or series.cyclic or series.duration_s >= horizon_s:
        return []
    return [
        f"{path}.rates_rps covers {series.duration_s:g} s of a horizon of {horizon_s} s: "
        "add rates, shorten horizon_s or set cyclic: true"
    ]


def _kind_findings(path: str, spec: WorkloadSpec, source: SourceSpec, kind: RequestKind) -> list[str]:
    findings = []
    if kind.class_name not in spec.class_names:
        findings.append(f"{path}.class {kind.class_name!r} is not a class; allowed: {', '.join(spec.class_names)}")
    shortest = source.prefix_tokens + kind.prompt_tokens.smallest
    longest = source.prefix_tokens + kind.prompt_tokens.largest
    if longest >= spec.max_total_tokens:
        findings.append(
            f"{path}.prompt_tokens reaches {longest} with the shared prefix; "
            f"below max_total_tokens ({spec.max_total_tokens}) is allowed, to leave room for an output"
        )
    if source.sessions:
        longest = spec.max_total_tokens - 1
    for prompt in (shortest, longest):
        middle, drift = kind.acceptance.without_drift(prompt), kind.acceptance.drift_amplitude
        if middle - drift < 0.0 or middle + drift > 1.0:
            findings.append(
                f"{path}.acceptance reaches {middle - drift:.3g} to {middle + drift:.3g} for prompts of {prompt} "
                "tokens; it must stay in [0, 1]: change base, per_prompt_doubling or drift_amplitude"
            )
    return findings
