"""The KV pool against what vLLM 0.26 reported at its start on an H200."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmserve_env.profiles.memory import captured_sizes, engine_memory, memory_text
from llmserve_env.profiles.store import load_profile

RUNS = json.loads((Path(__file__).parents[2] / "recordings" / "h200" / "runs.json").read_text())
TIERS = {"bf16": "FP16", "fp8": "FP8"}
FIELDS = ("model", "weights", "max_num_seqs", "max_num_batched_tokens", "num_blocks")
SIZES = sorted({tuple(run[name] for name in FIELDS) for run in RUNS})
"""Every size of the pool that was recorded, with the null block."""


@pytest.mark.parametrize(("model", "weights", "sequences", "budget", "blocks"), SIZES)
def test_the_pool_is_within_two_per_cent_of_what_the_engine_found(
    model: str, weights: str, sequences: int, budget: int, blocks: int
) -> None:
    profile = load_profile(f"h200-141gb.{model}")
    found = engine_memory(profile, TIERS[weights], budget, sequences)
    assert found.pool_tokens() == pytest.approx(16 * (blocks - 1), rel=0.02)


def test_a_larger_model_and_budget_leave_the_pool_that_was_reported() -> None:
    # vLLM 0.26.0, Qwen3-32B in bf16 on one H200, 256 sequences, 8,192 tokens: weights 61.03 GiB, 257,856 tokens.
    found = engine_memory(load_profile("h200-141gb.qwen3-32b"), "FP16", 8192, 256)
    assert found.weight_bytes / 2**30 == pytest.approx(61.03, rel=0.005)
    assert found.pool_tokens() == pytest.approx(257_856, rel=0.02)
    assert found.graph_bytes / 2**30 == pytest.approx(1.3, rel=0.15)


def test_the_parts_add_up_to_the_share_of_the_card() -> None:
    profile = load_profile("h200-141gb.llama-3-8b")
    for share in (0.5, 0.9):
        found = engine_memory(profile, "FP8", 4096, 512, share)
        assert found.weight_bytes + found.reserve_bytes + found.pool_bytes == int(share * profile.gpu.memory_bytes)
    assert "tokens of KV cache" in memory_text(profile, "FP8", 4096, 512)


def test_captured_sizes_are_those_of_vllm() -> None:
    assert [captured_sizes(n) for n in (0, 256, 512)] == [0, 35, 51]
