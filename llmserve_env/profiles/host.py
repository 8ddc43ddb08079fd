"""The host's part of a deployment: how long the CPU beside a GPU takes, as a file with the source of its numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from llmserve_env.engine.costs import Curve, GpuCosts, HostCosts, HostTime, TierCosts
from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.errors import ProfileError
from llmserve_env.profiles.schema import Model
from llmserve_env.units import ms_to_ps

DATA = Path(__file__).parent / "hosts"
Milliseconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BatchTime(_Part):
    """Host time for a batch: a constant, and a part per sequence."""

    base_ms: Milliseconds
    per_sequence_ms: Milliseconds = 0.0

    def costs(self, scale: float = 1.0) -> HostTime:
        """In the engine's picoseconds; `scale` times as long."""
        return HostTime(ms_to_ps(scale * self.base_ms), ms_to_ps(scale * self.per_sequence_ms))


class TokenTimes(_Part):
    """GPU time over the tokens of an iteration, linear between them; negative where the engine is faster."""

    tokens: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=2)
    ms: tuple[Annotated[float, Field(allow_inf_nan=False)], ...]

    @model_validator(mode="after")
    def _are_pairs(self) -> TokenTimes:
        if len(self.tokens) != len(self.ms) or any(b <= a for a, b in pairwise(self.tokens)):
            raise ValueError("tokens must increase, with one time each")
        return self

    def added_to(self, curve: Curve) -> Curve:
        """A curve over tokens with these times on top, never falling."""
        tokens = np.union1d(curve.x, self.tokens)
        beyond = np.interp(tokens, self.tokens, self.ms) * ms_to_ps(1.0)
        slope = (curve.ps[-1] - curve.ps[-2]) / (curve.x[-1] - curve.x[-2])
        own = np.interp(tokens, curve.x, curve.ps) + np.maximum(tokens - curve.x[-1], 0) * slope
        times = np.maximum.accumulate(np.maximum(own + beyond, 0.0))
        return Curve(tuple(map(int, tokens)), tuple(round(float(ps)) for ps in times))


class ServedModel(_Part):
    """What launching a model's iterations depends on."""

    name: str
    layers: Annotated[int, Field(ge=1)]
    kernels_per_layer: Annotated[int, Field(ge=1)]


class Host(_Part):
    """One machine and engine version; docs/engine.md (Two clocks) defines the times."""

    name: str = Field(min_length=1)
    machine: str
    engine: str
    provenance: str
    """Where the numbers come from, and the command that makes them again."""
    front_end_ms: Milliseconds
    answer_ms: Milliseconds
    full_graph: BatchTime
    piecewise_graph: BatchTime
    no_graph: BatchTime
    per_admission_ms: Milliseconds
    output: BatchTime
    sampling: BatchTime
    decode_attention: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 1.0
    """GPU time of decode attention in the engine as a multiple of the profile's: paged, over uneven lengths."""
    products: dict[str, TokenTimes] = Field(default_factory=dict)
    """GPU time of the engine's matrix products beyond the profile's, by the name of the tier."""
    served: ServedModel | None = None
    """The model beside which the times were taken; without it they hold beside any model."""

    def for_model(self, model: Model) -> Host:
        """The host beside another model: pieces of a graph are launched per layer, and without a graph each kernel."""
        if self.served is None or model.layers is None:
            return self
        layers = model.layers / self.served.layers
        per_layer = model.kernels_per_layer or self.served.kernels_per_layer
        return self.model_copy(
            update={
                "piecewise_graph": self._launched(self.piecewise_graph, layers),
                "no_graph": self._launched(self.no_graph, layers * per_layer / self.served.kernels_per_layer),
                "products": self.products if model.name == self.served.name else {},
            }
        )

    def _launched(self, mode: BatchTime, factor: float) -> BatchTime:
        """What a mode takes beyond a full graph grows with what it launches; scheduling does not."""
        if factor == 1.0:
            return mode
        scheduling_ms = min(self.full_graph.base_ms, mode.base_ms)
        base_ms = scheduling_ms + factor * (mode.base_ms - scheduling_ms)
        return BatchTime(base_ms=base_ms, per_sequence_ms=mode.per_sequence_ms)

    def costs(self, scale: float = 1.0) -> HostCosts:
        """In the engine's picoseconds; `scale` times as long, for a slower or faster CPU."""
        return HostCosts(
            front_end_ps=ms_to_ps(scale * self.front_end_ms),
            answer_ps=ms_to_ps(scale * self.answer_ms),
            full_graph=self.full_graph.costs(scale),
            piecewise_graph=self.piecewise_graph.costs(scale),
            no_graph=self.no_graph.costs(scale),
            per_admission_ps=ms_to_ps(scale * self.per_admission_ms),
            output=self.output.costs(scale),
            # Sampling runs on the GPU.
            sampling=self.sampling.costs(),
        )

    def gpu_costs(self, costs: GpuCosts) -> GpuCosts:
        """The costs of a profile as this engine's kernels reach them."""
        return replace(
            costs, tiers={number: self._tier_costs(TIER_NAMES[number], tier) for number, tier in costs.tiers.items()}
        )

    def _tier_costs(self, name: str, tier: TierCosts) -> TierCosts:
        curves = (Curve(c.x, tuple(round(ps * self.decode_attention) for ps in c.ps)) for c in tier.decode_attention)
        gemm = self.products[name].added_to(tier.gemm) if name in self.products else tier.gemm
        return replace(tier, gemm=gemm, decode_attention=tuple(curves))


def list_hosts() -> list[str]:
    """Names of the shipped hosts."""
    return sorted(path.stem for path in DATA.glob("*.json"))


def load_host(name: str | Path) -> Host:
    """A shipped host by its name, or the host in a `.json` file."""
    path = Path(name) if str(name).endswith(".json") else DATA / f"{name}.json"
    if not path.is_file():
        raise ProfileError(
            f"no host {str(name)!r}; choose one of {', '.join(list_hosts())}, or give the path of a .json file"
        )
    try:
        return Host.model_validate_json(path.read_bytes())
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise ProfileError(f"{path.name} is not a valid host: {where}: {problem['msg']}") from error


def beside(profile: Path) -> Path:
    """Where `llmserve calibrate` writes the host of a profile."""
    return profile.with_suffix(".host.json")


def save_host(host: Host, folder: Path = DATA) -> Path:
    """Write `<name>.json`."""
    path = folder / f"{host.name}.json"
    path.write_text(json.dumps(host.model_dump(mode="json"), indent=2) + "\n", encoding="utf-8")
    return path
