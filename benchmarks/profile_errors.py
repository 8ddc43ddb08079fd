"""Compare profiles with measured iterations: `python -m benchmarks.profile_errors [--composed]`.

By default it prints the errors of the measured profile on points left out of the fit, by tier. With `--composed` it
compares the profile summed from single kernels with the one measured as a whole.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.markdown import markdown_table
from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.profiles import load_profile
from llmserve_env.profiles.comparison import compare
from llmserve_env.profiles.measured import error_of
from llmserve_env.profiles.measurements import Point, load_measurements
from llmserve_env.profiles.prediction import predict_ps
from llmserve_env.profiles.schema import FitError
from llmserve_env.units import ps_to_ms

MEASUREMENTS = Path(__file__).resolve().parent.parent / "tools" / "profiler" / "measurements"
MEASURED, COMPOSED = "h200-141gb.llama-3-8b", "h200-141gb-composed.llama-3-8b"
FIT_FILES = ("h200-141gb.fp16.json", "h200-141gb.int8-int4.json", "h200-141gb.fp8.json")
OTHER_OCCASIONS = ("h200-141gb.independent.json", "h200-141gb.quick.json")
COMPOSED_FILES = ("h200-141gb.fp16.json", "h200-141gb.random.json", "h200-141gb.independent.json")
Work = Sequence[tuple[int, int]]
ITERATIONS: tuple[tuple[str, Work, Work], ...] = (
    ("decode 1 × 1,024", [(1, 1024)], []),
    ("decode 32 × 1,024", [(32, 1024)], []),
    ("decode 128 × 1,024", [(128, 1024)], []),
    ("decode 256 × 1,024", [(256, 1024)], []),
    ("decode 64 × 8,192", [(64, 8192)], []),
    ("prefill 512", [], [(512, 0)]),
    ("prefill 2,048", [], [(2048, 0)]),
    ("prefill 8,192", [], [(8192, 0)]),
    ("prefill 2,048 after 6,144", [], [(2048, 6144)]),
    ("decode 128 × 1,024 and prefill 512", [(128, 1024)], [(512, 0)]),
)


def points_of(files: Sequence[str]) -> list[Point]:
    """All points of the measurement files."""
    return [point for name in files for point in load_measurements(MEASUREMENTS / name).points]


def errors(profile: str, tier: str, files: Sequence[str], held_out_only: bool) -> FitError:
    """Errors of the profile on one tier's points."""
    compared = compare(load_profile(profile), tier, points_of(files), held_out_only)
    return error_of([c.predicted_ms for c in compared], [c.point.ms for c in compared])


def held_out() -> str:
    """Errors of the measured profile on points left out of its fit."""
    rows = []
    occasions: list[tuple[str, Sequence[str], bool]] = [("left out of the fit", FIT_FILES, True)]
    occasions += [(f"another occasion, `{name}`", (name,), False) for name in OTHER_OCCASIONS]
    for label, files, held_out_only in occasions:
        measured = {point.tier for point in points_of(files)}
        for tier in (name for name in TIER_NAMES if name in measured):
            e = errors(MEASURED, tier, files, held_out_only)
            shares = (e.median_pct, e.p95_pct, e.max_pct)
            rows.append([label, tier, str(e.points), *(f"{share:.1f} %" for share in shares)])
    return markdown_table(["measurement", "tier", "points", "median", "p95", "max"], rows)


def composed() -> str:
    """Composed and measured times of typical FP16 iterations."""
    costs = [load_profile(name).costs() for name in (MEASURED, COMPOSED)]
    rows = []
    for label, decode, prefill in ITERATIONS:
        whole, summed = (ps_to_ms(predict_ps(cost, TIER_NAMES[0], decode, prefill, 0)) for cost in costs)
        rows.append([label, f"{whole:.2f}", f"{summed:.2f}", f"{summed / whole - 1:+.0%}"])
    e = errors(COMPOSED, TIER_NAMES[0], COMPOSED_FILES, held_out_only=False)
    shown = markdown_table(["iteration, FP16", "measured profile, ms", "composed, ms", "difference"], rows)
    against = f"Composed against all {e.points} measured points: median {e.median_pct:.1f} %, p95 {e.p95_pct:.1f} %."
    return f"{shown}\n\n{against}"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--composed", action="store_true", help="compare the composed profile with the measured one")
    print(composed() if parser.parse_args().composed else held_out())


if __name__ == "__main__":
    main()
