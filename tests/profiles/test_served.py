"""What a replica serves, and the laws of spreading it over GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.errors import ProfileError
from llmserve_env.profiles.composing.served import Served
from llmserve_env.profiles.gpus import GPUS
from llmserve_env.profiles.model_spec import Experts, find_model, known_models
from llmserve_env.profiles.naming import parse_name, profile_name

QWEN, LLAMA = find_model("qwen3-30b-a3b"), find_model("llama-3.1-70b")
ways = st.sampled_from([1, 2, 4, 8])


@st.composite
def replicas(draw: st.DrawFn) -> Served:
    model = find_model(draw(st.sampled_from(known_models())))
    tp = draw(ways.filter(lambda n: model.heads % n == 0))
    return Served(
        model,
        draw(st.sampled_from(TIER_NAMES)),
        draw(st.sampled_from(["fp16", "fp8"])),
        tensor_parallel=tp,
        pipeline_parallel=draw(st.sampled_from([1, 2])),
        expert_parallel=draw(st.sampled_from([1, tp])) if model.experts else 1,
    )


@given(served=replicas())
def test_more_tensor_parallelism_shrinks_what_a_gpu_holds(served: Served) -> None:
    if served.tensor_parallel > 1 and served.expert_parallel == 1:
        alone = replace(served, tensor_parallel=1)
        assert served.weight_bytes == pytest.approx(alone.weight_bytes / served.tensor_parallel, rel=0.01)
        assert served.kv_bytes_per_token <= alone.kv_bytes_per_token


@given(served=replicas(), gpu=st.sampled_from(sorted(GPUS)))
def test_the_name_of_a_profile_says_what_it_serves(served: Served, gpu: str) -> None:
    assert parse_name(profile_name(gpu, served)) == (gpu, replace(served, weights="FP16"))


@given(count=st.integers(2, 16), width=st.integers(32, 512))
def test_experts_that_are_all_active_are_a_dense_block_of_their_joint_width(count: int, width: int) -> None:
    dense = replace(QWEN, experts=None, ffn=count * width)
    mixed = replace(QWEN, experts=Experts(count, count, width), ffn=0)
    router = QWEN.layers * QWEN.hidden * count
    assert mixed.active_parameters - router == dense.active_parameters
    assert mixed.other_parameters + mixed.expert_parameters - router == dense.other_parameters
    assert Served(mixed).activation_bytes_per_token == Served(dense).activation_bytes_per_token
    assert Served(mixed).kv_bytes_per_token == Served(dense).kv_bytes_per_token


def test_four_bits_of_an_expert_model_are_those_of_its_experts() -> None:
    experts_gb = QWEN.expert_parameters * 0.5625 / 1e9
    others_gb = 2 * (QWEN.other_parameters + QWEN.embedding_parameters) / 1e9
    assert Served(QWEN, "FP4").weight_bytes / 1e9 == pytest.approx(experts_gb + others_gb, rel=1e-3)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        (
            {"tensor_parallel": 3},
            "tensor_parallel 3 does not divide the 64 heads of llama-3.1-70b; allowed: 1, 2, 4, 8",
        ),
        ({"tensor_parallel": 0}, "tensor_parallel must be 1 or more; got 0"),
        ({"weights": "FP6"}, "weights 'FP6' unknown; choose one of fp16, int8, int4, fp8, fp4"),
        ({"kv_cache": "int4"}, "kv_cache 'int4' unknown; choose one of fp16, fp8"),
        ({"expert_parallel": 2}, "need a model with experts; llama-3.1-70b has none"),
        ({"pipeline_parallel": 99}, "pipeline_parallel 99 exceeds the 80 layers of llama-3.1-70b"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ProfileError, match=complaint.replace(".", r"\.")):
        Served(LLAMA, **fields)


def test_experts_are_spread_over_the_gpus_that_there_are() -> None:
    with pytest.raises(ProfileError, match=r"expert_parallel 3 must divide the 2 GPUs .*; allowed: 1, 2"):
        Served(QWEN, tensor_parallel=2, expert_parallel=3)
