"""The composed profiles that are shipped: what is there, and the laws of spreading a model over GPUs."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import pytest

from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.errors import ProfileError
from llmserve_env.profiles import Profile, load_profile, predict
from llmserve_env.profiles.composing.served import Served
from llmserve_env.profiles.gpus import GPUS
from llmserve_env.profiles.model_spec import find_model, known_models
from llmserve_env.profiles.naming import parse_name, profile_name
from llmserve_env.profiles.serving import served_profile
from llmserve_env.profiles.store import find_shipped, list_composed, shipped_tiers

HAS_TABLES = find_spec("aiconfigurator_core") is not None
SERVED = [
    ("h100-80gb", "llama-3.3-70b", "FP8"),
    ("h200-141gb", "qwen3-32b", "FP16"),
    ("b200-192gb", "qwen3-235b-a22b", "FP8"),
    ("h200-141gb", "gpt-oss-120b", "FP4"),
    ("b200-192gb", "kimi-k2", "FP4"),
    ("a100-80gb", "llama-3.1-8b", "FP16"),
]


def spread(gpu: str, model: str, tier: str) -> dict[int, Profile]:
    """The shipped profiles that have a tier, by tensor parallelism."""
    found = {n: find_shipped(profile_name(gpu, Served(find_model(model), tensor_parallel=n))) for n in (1, 2, 4, 8)}
    return {n: profile for n, profile in found.items() if profile is not None and tier in profile.tiers}


def test_every_known_model_can_be_served_somewhere_and_every_card_serves_something() -> None:
    parsed = [parse_name(name) for name in list_composed()]
    assert {p[1].model.name for p in parsed if p} == set(known_models())
    assert {p[0] for p in parsed if p} == set(GPUS)
    assert None not in parsed


@pytest.mark.parametrize(("gpu", "model", "tier"), SERVED)
def test_a_composed_profile_names_its_tables_and_fits_its_card(gpu: str, model: str, tier: str) -> None:
    for ways, profile in spread(gpu, model, tier).items():
        assert "aiconfigurator-core" in profile.provenance.source
        assert profile.gpus == ways
        assert list(profile.tiers) == shipped_tiers(profile.name)
        assert max(one.weight_bytes for one in profile.tiers.values()) < 0.9 * profile.gpu.memory_bytes
        assert profile.costs().price_usd_per_hour == pytest.approx(ways * profile.gpu.price_usd_per_hour)


def test_keys_and_values_in_8_bits_take_half_the_memory() -> None:
    served = Served(find_model("llama-3.3-70b"), "FP8", tensor_parallel=2)
    wide, narrow = (served_profile("h100-80gb", replace(served, kv_cache=kv)) for kv in ("fp16", "fp8"))
    assert narrow.model.kv_bytes_per_token * 2 == wide.model.kv_bytes_per_token
    assert predict(narrow, "FP8", [(64, 8192)]) < predict(wide, "FP8", [(64, 8192)])


def test_an_unknown_gpu_is_refused_by_name() -> None:
    with pytest.raises(ProfileError, match=r"gpu 'v100' is not known; choose one of a100-40gb"):
        served_profile("v100", Served(find_model("qwen3-8b")))


def test_what_does_not_fit_names_the_smallest_that_does() -> None:
    with pytest.raises(ProfileError, match=r"tensor_parallel 1: .*the smallest that fits is 2"):
        served_profile("h100-80gb", Served(find_model("llama-3.3-70b"), "FP16"))


def test_a_precision_that_the_card_lacks_names_those_it_has() -> None:
    with pytest.raises(ProfileError, match=r"weights fp4: h100-80gb does not compute in it; allowed: fp16, int8"):
        served_profile("h100-80gb", Served(find_model("llama-3.1-8b"), "FP4"))


@pytest.mark.skipif(not HAS_TABLES, reason="needs aiconfigurator-core, the extra `profiles`")
def test_a_shipped_profile_is_composed_again_to_the_digit() -> None:
    from llmserve_env.profiles.composing.compose import compose_profile

    shipped = load_profile("h200-141gb.qwen3-32b")
    served = Served(find_model("qwen3-32b"))
    assert compose_profile("h200-141gb", served, shipped.provenance.date, TIER_NAMES).tiers == shipped.tiers
