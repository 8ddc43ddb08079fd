"""Compare a profile with measured iterations: the error tables of docs/profiles.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmserve_env.errors import ProfileError
from llmserve_env.profiles.measured import error_of, predicted_ms
from llmserve_env.profiles.measurements import Point
from llmserve_env.profiles.schema import Profile
from llmserve_env.profiles.showing import aligned

KINDS = ("decode", "verification", "prefill", "prefill after a past", "mixed")


@dataclass(frozen=True)
class Comparison:
    """One measured point and the profile's prediction for it."""

    point: Point
    predicted_ms: float

    @property
    def error_pct(self) -> float:
        return (self.predicted_ms / self.point.ms - 1.0) * 100


def kind_of(point: Point) -> str:
    """The kind of an iteration, one of KINDS."""
    if point.sequences and point.prefill:
        return "mixed"
    if point.sequences:
        return "verification" if point.query_tokens > 1 else "decode"
    return "prefill after a past" if any(past for _, past in point.prefill) else "prefill"


def compare(profile: Profile, tier: str, points: Sequence[Point], held_out_only: bool = False) -> list[Comparison]:
    """The profile's target model against the measured points of one tier."""
    wanted = [
        p for p in points if p.model == profile.model.name and p.tier == tier and (p.held_out or not held_out_only)
    ]
    if not wanted:
        raise ProfileError(f"the measurements hold no {tier} points of {profile.model.name} to compare with")
    costs = profile.costs()
    return [Comparison(point, predicted_ms(costs, point)) for point in wanted]


def comparison_text(comparisons: Sequence[Comparison], with_rows: bool) -> str:
    """Errors by kind of iteration, and every point if requested."""
    rows = []
    for kind in (*KINDS, "all"):
        chosen = [c for c in comparisons if kind in ("all", kind_of(c.point))]
        if chosen:
            error = error_of([c.predicted_ms for c in chosen], [c.point.ms for c in chosen])
            bias = sum(c.error_pct for c in chosen) / len(chosen)
            cells = (error.median_pct, error.p95_pct, error.max_pct)
            rows.append([kind, str(error.points), *(f"{x:.1f}" for x in cells), f"{bias:+.1f}"])
    lines = aligned(["iterations", "points", "median %", "p95 %", "max %", "mean signed %"], rows)
    if with_rows:
        lines += ["", *_point_rows(comparisons)]
    return "\n".join(lines)


def _point_rows(comparisons: Sequence[Comparison]) -> list[str]:
    rows = []
    for c in comparisons:
        p = c.point
        what = f"{p.sequences} x {p.context} (q = {p.query_tokens})" if p.sequences else ""
        what += (" + " if what and p.prefill else "") + ", ".join(f"{n} after {past}" for n, past in p.prefill)
        rows.append([what, f"{p.ms:.2f}", f"{c.predicted_ms:.2f}", f"{c.error_pct:+.1f}"])
    return aligned(["iteration", "measured ms", "profile ms", "difference %"], rows)
