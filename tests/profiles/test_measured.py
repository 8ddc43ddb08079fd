"""The H200 profile against the committed measurements: the errors are recomputed."""

from __future__ import annotations

import pytest

from llmserve_env.errors import ProfileError
from llmserve_env.profiles import Profile, predict
from llmserve_env.profiles.comparison import compare
from llmserve_env.profiles.measured import error_of, held_out_error, measured_profile, training_points, with_tiers
from llmserve_env.profiles.measurements import Measurements
from tests.profiles.conftest import ADDED, FITTED

TIERS = ("FP16", "INT8", "INT4", "FP8")


@pytest.mark.parametrize("tier", TIERS)
def test_points_left_out_of_the_fit_are_met(h200: Profile, measurements: dict[str, Measurements], tier: str) -> None:
    points = [p for name in (*FITTED, *ADDED) for p in measurements[name].points if p.model == "llama-3-8b"]
    error = held_out_error(h200, tier, points)
    assert error.points >= 70
    assert error.median_pct <= 3.0
    assert error.p95_pct <= 8.0
    assert {name: t.held_out for name, t in h200.tiers.items()}[tier] == error


def test_a_separate_session_on_the_card_agrees(h200: Profile, measurements: dict[str, Measurements]) -> None:
    found = compare(h200, "FP16", measurements["independent"].points)
    error = error_of([c.predicted_ms for c in found], [c.point.ms for c in found])
    assert error.points == 60
    assert error.median_pct <= 5.0
    assert error.max_pct <= 10.0


def test_the_shipped_profile_is_the_fit_of_the_committed_measurements(
    h200: Profile, measurements: dict[str, Measurements]
) -> None:
    base = measured_profile("h200-141gb", "llama-3-8b", [measurements[name] for name in FITTED])
    fitted = with_tiers(base, [measurements[name] for name in ADDED])
    for tier in TIERS:
        for iteration in ([(1, 1024)], [(37, 700)], [(300, 900)]):
            assert predict(fitted, tier, iteration) == pytest.approx(predict(h200, tier, iteration), rel=1e-3)
        assert predict(fitted, tier, [], [(700, 300)]) == pytest.approx(predict(h200, tier, [], [(700, 300)]), rel=1e-3)


def test_no_held_out_point_was_fitted(measurements: dict[str, Measurements]) -> None:
    points = [p for name in FITTED for p in measurements[name].points]
    assert {p.key for p in points if p.held_out}.isdisjoint({p.key for p in training_points(points)})
    assert len(training_points(points)) > 900


def test_the_kernels_computed_what_they_claim(measurements: dict[str, Measurements]) -> None:
    for found in measurements.values():
        exact = {k: e for k, e in found.kernel_errors.items() if "quantize" not in k and "INT4 weights" not in k}
        assert len(exact) > 40
        assert max(exact.values()) < 0.01


@pytest.mark.parametrize(
    ("decode", "prefill", "ms"),
    [
        ([(1, 1024)], [], 5.1),
        ([(32, 1024)], [], 6.3),
        ([(128, 1024)], [], 9.8),
        ([(256, 1024)], [], 15.5),
        ([(512, 1024)], [], 28.0),
        ([(64, 8192)], [], 20.7),
        ([], [(512, 0)], 13.0),
        ([], [(1024, 0)], 25.0),
        ([], [(2048, 0)], 50.0),
        ([], [(4096, 0)], 103.0),
        ([], [(8192, 0)], 220.0),
        ([], [(2048, 6144)], 61.0),
    ],
)
def test_known_figures_of_the_card_are_met(
    h200: Profile, decode: list[tuple[int, int]], prefill: list[tuple[int, int]], ms: float
) -> None:
    assert predict(h200, "FP16", decode, prefill) == pytest.approx(ms, rel=0.1)


def test_quantization_pays_where_weights_dominate_and_not_where_compute_does(h200: Profile) -> None:
    times = {tier: (predict(h200, tier, [(1, 512)]), predict(h200, tier, [], [(2048, 0)])) for tier in TIERS}
    assert times["INT4"][0] < times["INT8"][0] < times["FP16"][0]
    assert times["FP8"][1] < times["INT8"][1] < times["FP16"][1] < times["INT4"][1]


def test_a_model_without_a_draft_model_is_refused(measurements: dict[str, Measurements]) -> None:
    with pytest.raises(ProfileError, match=r"no model 'llama-3\.2-1b' with a draft model; choose llama-3-8b"):
        measured_profile("h200-141gb", "llama-3.2-1b", list(measurements.values()))


def test_a_profile_has_the_tiers_that_were_measured(measurements: dict[str, Measurements]) -> None:
    assert list(measured_profile("h200-141gb", "llama-3-8b", [measurements["fp16"]]).tiers) == ["FP16"]


def test_a_tier_measured_later_leaves_the_others_as_they_were(measurements: dict[str, Measurements]) -> None:
    base = measured_profile("h200-141gb", "llama-3-8b", [measurements["fp16"]])
    both = with_tiers(base, [measurements["int8-int4"], measurements["random"]])
    assert list(both.tiers) == ["FP16", "INT8", "INT4"]
    assert both.tiers["FP16"] == base.tiers["FP16"]
    assert both.tiers["INT8"].decode_attention == base.tiers["FP16"].decode_attention
    for name in ("INT8", "INT4"):
        error = both.tiers[name].held_out
        assert error is not None
        assert error.median_pct <= 3.0


def test_measurements_without_a_new_tier_are_refused(measurements: dict[str, Measurements]) -> None:
    base = measured_profile("h200-141gb", "llama-3-8b", [measurements["fp16"]])
    with pytest.raises(ProfileError, match=r"no tier of llama-3-8b that h200-141gb\.llama-3-8b lacks"):
        with_tiers(base, [measurements["fp16"]])
