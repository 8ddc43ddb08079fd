"""The host's part of a deployment: how long the CPU beside a GPU takes, as a file with the source of its numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llmserve_env.engine.costs import Curve, GpuCosts, HostCosts, HostTime, TierCosts
from llmserve_env.errors import ProfileError
from llmserve_env.units import ms_to_ps

DATA = Path(__file__).parent / "hosts"
Milliseconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BatchTime(_Part):
    """Host time for a batch: a constant, and a part per sequence."""

    base_ms: Milliseconds
    per_sequence_ms: Milliseconds = 0.0

    def costs(self) -> HostTime:
        """In the engine's picoseconds."""
        return HostTime(ms_to_ps(self.base_ms), ms_to_ps(self.per_sequence_ms))


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

    def costs(self) -> HostCosts:
        """In the engine's picoseconds."""
        return HostCosts(
            front_end_ps=ms_to_ps(self.front_end_ms),
            answer_ps=ms_to_ps(self.answer_ms),
            full_graph=self.full_graph.costs(),
            piecewise_graph=self.piecewise_graph.costs(),
            no_graph=self.no_graph.costs(),
            per_admission_ps=ms_to_ps(self.per_admission_ms),
            output=self.output.costs(),
            sampling=self.sampling.costs(),
        )

    def gpu_costs(self, costs: GpuCosts) -> GpuCosts:
        """The costs of a profile as this engine's kernels reach them."""
        return replace(costs, tiers={number: self._tier_costs(tier) for number, tier in costs.tiers.items()})

    def _tier_costs(self, tier: TierCosts) -> TierCosts:
        curves = (Curve(c.x, tuple(round(ps * self.decode_attention) for ps in c.ps)) for c in tier.decode_attention)
        return replace(tier, decode_attention=tuple(curves))


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
