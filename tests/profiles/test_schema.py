from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmserve_env.errors import ProfileError
from llmserve_env.profiles import list_profiles, load_profile
from llmserve_env.profiles.store import DATA, save_profile

Data = dict[str, Any]
Write = Callable[[Callable[[Data], None]], Path]


def fp16(data: Data) -> Data:
    tier: Data = data["tiers"]["FP16"]
    return tier


def negative_overhead(data: Data) -> None:
    fp16(data)["overhead_us"] = -1.0


def negative_curve(data: Data) -> None:
    fp16(data)["gemm_tokens"]["ms"][0] = -0.1


def falling_curve(data: Data) -> None:
    fp16(data)["gemm_tokens"]["ms"][3] = 1.0


def knots_that_turn_back(data: Data) -> None:
    fp16(data)["gemm_tokens"]["x"][1] = 1


def knots_without_times(data: Data) -> None:
    fp16(data)["gemm_tokens"]["x"].append(99999)


def not_a_number(data: Data) -> None:
    fp16(data)["per_sequence_us"] = float("nan")


def weights_faster_than_memory(data: Data) -> None:
    curve = fp16(data)["gemm_tokens"]
    curve["ms"] = [ms / 2 for ms in curve["ms"]]
    curve["ms"][-1] = 1e6


def gemm_above_peak(data: Data) -> None:
    curve = fp16(data)["gemm_tokens"]
    curve["ms"] = [min(ms, 50.0) for ms in curve["ms"]]


def attention_faster_than_memory(data: Data) -> None:
    curve = fp16(data)["decode_attention"][0]["context_tokens"]
    curve["ms"] = [ms / 2 for ms in curve["ms"]]


def prefill_attention_above_peak(data: Data) -> None:
    curve = fp16(data)["prefill_attention_pairs"]
    curve["ms"] = [ms / 10 for ms in curve["ms"]]


def weights_beyond_memory(data: Data) -> None:
    fp16(data)["weight_bytes"] = 10**12


def no_tier(data: Data) -> None:
    data["tiers"] = {}


def unknown_tier(data: Data) -> None:
    data["tiers"]["INT2"] = data["tiers"]["INT4"]


def missing_single_token_attention(data: Data) -> None:
    del fp16(data)["decode_attention"][0]


def unknown_field(data: Data) -> None:
    data["gpu"]["colour"] = "green"


def other_version(data: Data) -> None:
    data["format_version"] = 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (negative_overhead, "FP16.overhead_us: Input should be greater than or equal to 0"),
        (negative_curve, "greater than or equal to 0"),
        (falling_curve, "times must not decrease, but 1.0 ms at 4 is less than"),
        (knots_that_turn_back, "strictly increasing"),
        (knots_without_times, "one time per knot"),
        (not_a_number, "finite number"),
        (weights_faster_than_memory, "reads the weights faster than the memory's 1555 GB/s allows"),
        (gemm_above_peak, "above the card's peak of 312 TFLOP/s"),
        (attention_faster_than_memory, "above the memory's bandwidth"),
        (prefill_attention_above_peak, "prefill attention over .* above the card's peak"),
        (weights_beyond_memory, "do not fit the GPU's"),
        (no_tier, "at least 1 item"),
        (unknown_tier, "'FP16', 'INT8', 'INT4', 'FP8' or 'FP4'"),
        (missing_single_token_attention, "start at 1"),
        (unknown_field, "gpu.colour: Extra inputs are not permitted"),
        (other_version, "format_version: Input should be 1"),
    ],
)
def test_nonsense_is_refused_in_words(broken_profile: Write, change: Callable[[Data], None], words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        load_profile(broken_profile(change))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ProfileError, match=r"no profile 'b300'; choose one of a100-40gb\.llama-3-8b, "):
        load_profile("b300")


@pytest.mark.parametrize("name", list_profiles())
def test_every_shipped_profile_is_named_as_its_file_and_written_as_it_is_saved(name: str, tmp_path: Path) -> None:
    profile = load_profile(name)
    assert profile.name == name
    saved = save_profile(profile, tmp_path)
    assert saved.read_text() == (DATA / f"{name}.json").read_text()
    assert json.loads(saved.read_text())["provenance"]["licence"]


def test_the_cards_the_tasks_and_tables_stand_on_are_shipped() -> None:
    cards = {"a100-40gb", "a100-80gb", "h100-80gb", "h200-141gb", "h200-141gb-composed"}
    assert {f"{card}.llama-3-8b" for card in cards} <= set(list_profiles())
