"""Profiles summed from published kernel timings: their scale, and their distance from our own measurement."""

from __future__ import annotations

from importlib.util import find_spec
from statistics import median

import pytest

from llmserve_env.errors import ProfileError
from llmserve_env.profiles import Profile, load_profile, predict
from llmserve_env.profiles.comparison import compare
from llmserve_env.profiles.measurements import Measurements

needs_tables = pytest.mark.skipif(
    find_spec("aiconfigurator_core") is None or find_spec("pandas") is None, reason="needs the extra [profiles]"
)
CARDS = ("a100-40gb", "a100-80gb", "h100-80gb", "h200-141gb")


def output_tps(profile: Profile, tier: str, sequences: int, context: int) -> float:
    return sequences / predict(profile, tier, [(sequences, context)]) * 1e3


def test_an_a100_40gb_decodes_at_its_known_scale() -> None:
    profile = load_profile("a100-40gb.llama-3-8b")
    assert 2_300 <= output_tps(profile, "FP16", 32, 64) <= 2_800
    assert 2_250 <= output_tps(profile, "FP16", 32, 128) <= 2_800
    assert 6_000 <= output_tps(profile, "FP16", 128, 128) <= 8_000
    assert 6_000 <= output_tps(profile, "FP16", 128, 256) <= 8_000


def test_the_composed_h200_is_near_the_measured_one(measurements: dict[str, Measurements]) -> None:
    points = [p for found in measurements.values() for p in found.points]
    found = compare(load_profile("h200-141gb-composed.llama-3-8b"), "FP16", points)
    assert len(found) > 500
    assert median(abs(c.error_pct) for c in found) <= 10.0


def test_less_bandwidth_slows_what_is_memory_bound_and_nothing_else() -> None:
    small, large = load_profile("a100-40gb.llama-3-8b"), load_profile("a100-80gb.llama-3-8b")
    decode = predict(small, "FP16", [(1, 1024)]) / predict(large, "FP16", [(1, 1024)])
    prefill = predict(small, "FP16", [], [(8192, 0)]) / predict(large, "FP16", [], [(8192, 0)])
    assert 1.2 < decode < 2039 / 1555
    assert prefill == pytest.approx(1.0, abs=0.03)


def test_each_generation_is_faster() -> None:
    for iteration in ([(1, 1024)], [(64, 2048)]):
        times = [predict(load_profile(f"{card}.llama-3-8b"), "FP16", iteration) for card in CARDS]
        assert times == sorted(times, reverse=True)


def test_what_nobody_timed_is_marked_derived() -> None:
    origins = {card: load_profile(f"{card}.llama-3-8b").tiers for card in CARDS}
    assert {t.origin for t in origins["a100-80gb"].values()} == {"composed"}
    assert [origins["h100-80gb"][t].origin for t in ("FP16", "INT8", "INT4")] == ["composed", "derived", "derived"]
    assert {t.origin for t in origins["h200-141gb"].values()} == {"measured"}


@needs_tables
@pytest.mark.parametrize("card", ["a100-40gb", "h100-80gb"])
def test_composing_again_gives_the_shipped_profile(card: str) -> None:
    from llmserve_env.profiles.composing.suite_profiles import compose

    shipped = load_profile(f"{card}.llama-3-8b")
    assert compose(card, "llama-3-8b", shipped.provenance.date) == shipped


def test_an_unknown_card_or_model_is_refused() -> None:
    from llmserve_env.profiles.composing.suite_profiles import compose

    with pytest.raises(ProfileError, match="no published timings for GPU 'tpu'; choose one of a100-40gb, "):
        compose("tpu", "llama-3-8b", "2026-01-01")
    with pytest.raises(ProfileError, match="no model 'gpt' with a draft model; choose llama-3-8b"):
        compose("h100-80gb", "gpt", "2026-01-01")
