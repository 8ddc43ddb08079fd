"""The action: every field, its range and its alias."""

from __future__ import annotations

from typing import Any

import pytest

from llmserve_env.client import checked_action
from llmserve_env.engine.knobs import KNOB, default_knobs, mapping_from_knobs
from llmserve_env.errors import InvalidActionError
from llmserve_env.tasks.catalog import load_task
from tests.mission.asked import asked

IN_RANGE: dict[str, list[Any]] = {
    "batch_cap": [1, 512],
    "kv_budget_fraction": [0.1, 1.0],
    "speculation_depth": [0, 1, 2, 4, 8],
    "quantization_tier": ["FP16", "INT8", "INT4", 0, 1, 2],
    "prefill_decode_split": [True, False],
    "priority_routing": [True, False],
}
OUTSIDE: dict[str, list[Any]] = {
    "batch_cap": [0, 513, 1.5],
    "kv_budget_fraction": [0.09, 1.01, float("nan")],
    "speculation_depth": [-1, 9],
    "quantization_tier": ["FP4", 3],
    "prefill_decode_split": ["maybe", 2],
    "priority_routing": ["maybe", 2],
}


def check_field(name: str, alias: str | None) -> None:
    """Both names are accepted over the whole range and mean the same; outside it, the error names field and range."""
    read = load_task("adversarial_multitenant").knobs_from_mapping
    for value in IN_RANGE[name]:
        action = read({name: value}).tolist()
        assert alias is None or read({alias: value}).tolist() == action
    for value in OUTSIDE[name]:
        with pytest.raises(InvalidActionError, match=name):
            read({name: value})


@asked("| `batch_cap` | int 1..512 | `batch_size` |", "both names, the same range")
def test_batch_cap_is_a_whole_number_from_1_to_512_and_also_called_batch_size() -> None:
    check_field("batch_cap", "batch_size")


@asked("| `kv_budget_fraction` | float 0.1..1.0 | `kv_budget` |", "both names, the same range")
def test_kv_budget_fraction_is_a_number_from_a_tenth_to_1_and_also_called_kv_budget() -> None:
    check_field("kv_budget_fraction", "kv_budget")


@asked(
    "| `speculation_depth` | int 0..8 (plan: 0,1,2,4,8) | `spec_length` |",
    "both names; every depth from 0 to 8, and the discrete action space has the plan's five",
)
def test_speculation_depth_is_0_to_8_and_also_called_spec_length() -> None:
    check_field("speculation_depth", "spec_length")
    assert KNOB["speculation_depth"].levels == (0, 1, 2, 4, 8)


@asked("| `quantization_tier` | FP16, INT8, INT4 | `quant_tier` (0,1,2) |", "both names; by name or number")
def test_quantization_tier_is_a_name_or_a_number_and_also_called_quant_tier() -> None:
    check_field("quantization_tier", "quant_tier")


@asked("| `prefill_decode_split` | bool | `prefill_disagg` |", "both names")
def test_prefill_decode_split_is_a_flag_and_also_called_prefill_disagg() -> None:
    check_field("prefill_decode_split", "prefill_disagg")


@asked("| `priority_routing` | bool | – |", "a flag without a second name")
def test_priority_routing_is_a_flag() -> None:
    check_field("priority_routing", None)


@asked(
    "Fixed baseline action (vLLM defaults): batch 32, KV 1.0, depth 0, FP16, no split, no priority.",
    "an action without fields, and the first agent of /baseline",
    "the name: these are the environment's defaults; vLLM itself starts with a larger batch, and docs/tasks.md says so",
)
def test_the_fixed_baseline_action_is_what_an_empty_action_means() -> None:
    baseline = {
        "batch_cap": 32,
        "kv_budget_fraction": 1.0,
        "speculation_depth": 0,
        "quantization_tier": "FP16",
        "prefill_decode_split": False,
        "priority_routing": False,
    }
    assert {name: checked_action({}).model_dump()[name] for name in baseline} == baseline
    assert {name: mapping_from_knobs(default_knobs())[name] for name in baseline} == baseline
