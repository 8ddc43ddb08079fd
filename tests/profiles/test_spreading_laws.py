"""Laws of spreading a model over GPUs: on the shipped profiles, and on published timings where they are installed."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.errors import ProfileError
from llmserve_env.profiles import Profile, predict
from llmserve_env.profiles.composing.served import WAYS, Served
from llmserve_env.profiles.gpus import GPUS
from llmserve_env.profiles.memory import LIBRARIES_BYTES, MIN_POOL_TOKENS, UTILISATION, check_card, engine_memory
from llmserve_env.profiles.model_spec import Experts, find_model, known_models
from llmserve_env.profiles.naming import parse_name
from llmserve_env.profiles.store import find_shipped, list_composed

needs_tables = pytest.mark.skipif(find_spec("aiconfigurator_core") is None, reason="needs aiconfigurator-core")
NVLINK = ("a100-40gb", "a100-80gb", "h100-80gb", "h200-141gb", "b200-192gb", "b300-288gb")
"""Cards whose all-reduces are timed at hundreds of GB/s; over PCIe, eight L40S agree at one."""


def _spreads() -> dict[tuple[str, str, str], dict[int, str]]:
    """Names of shipped profiles by card, model and KV precision, and then by tensor parallelism."""
    found: dict[tuple[str, str, str], dict[int, str]] = {}
    for name in list_composed():
        parsed = parse_name(name)
        if parsed is not None and parsed[1].expert_parallel == 1:
            gpu, served = parsed
            found.setdefault((gpu, served.model.name, served.kv_cache), {})[served.tensor_parallel] = name
    return {key: names for key, names in found.items() if len(names) > 1}


SPREADS = {key: names for key, names in _spreads().items() if key[0] in NVLINK}


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[str, int, Profile, Profile]:
    """A tier, how many times more GPUs, and two shipped profiles of one model that differ in that alone."""
    names = SPREADS[draw(st.sampled_from(sorted(SPREADS)))]
    few, many = draw(st.lists(st.sampled_from(sorted(names)), min_size=2, max_size=2, unique=True).map(sorted))
    first, second = (find_shipped(names[n]) for n in (few, many))
    assert first is not None
    assert second is not None
    tier = draw(st.sampled_from([name for name in first.tiers if name in second.tiers]))
    return tier, many // few, first, second


@given(pair=neighbours(), tokens=st.integers(8192, 16_384))
def test_more_tensor_parallelism_never_slows_a_large_prefill(
    pair: tuple[str, int, Profile, Profile], tokens: int
) -> None:
    tier, _, few, many = pair
    assert predict(many, tier, [], [(tokens, 0)]) <= predict(few, tier, [], [(tokens, 0)])


@given(pair=neighbours(), sequences=st.integers(1, 4), context=st.integers(128, 2048))
def test_a_small_batch_pays_for_all_reduces(
    pair: tuple[str, int, Profile, Profile], sequences: int, context: int
) -> None:
    tier, ways, few, many = pair
    assert ways * predict(many, tier, [(sequences, context)]) > predict(few, tier, [(sequences, context)])


@given(
    name=st.sampled_from(list_composed()),
    budget=st.integers(256, 16_384),
    running=st.integers(1, 1024),
    share=st.floats(0.5, 0.95),
)
def test_weights_keys_values_and_activations_never_exceed_the_card(
    name: str, budget: int, running: int, share: float
) -> None:
    profile = find_shipped(name)
    assert profile is not None
    for tier in profile.tiers:
        memory = engine_memory(profile, tier, budget, running, share)
        pool = max(memory.pool_tokens(), 0) * memory.kv_bytes_per_token
        if memory.pool_bytes >= 0:
            assert memory.weight_bytes + memory.reserve_bytes + pool <= memory.limit_bytes < memory.card_bytes


@st.composite
def replicas(draw: st.DrawFn) -> Served:
    model = find_model(draw(st.sampled_from(known_models())))
    fitting = [n for n in WAYS if model.heads % n == 0]
    return Served(model, draw(st.sampled_from(TIER_NAMES)), tensor_parallel=draw(st.sampled_from(fitting)))


def has_room(gpu: str, served: Served) -> bool:
    per_token = served.kv_bytes_per_token + served.activation_bytes_per_token
    needed = served.weight_bytes + LIBRARIES_BYTES + MIN_POOL_TOKENS * per_token
    return needed <= UTILISATION * GPUS[gpu].memory_bytes


@given(served=replicas(), gpu=st.sampled_from(sorted(GPUS)))
def test_an_impossible_deployment_is_refused_with_the_smallest_that_fits(served: Served, gpu: str) -> None:
    larger = [n for n in WAYS if n >= served.tensor_parallel and served.model.heads % n == 0]
    fits = [n for n in larger if has_room(gpu, replace(served, tensor_parallel=n))]
    try:
        check_card(gpu, served)
    except ProfileError as error:
        if "does not compute in it" in str(error):
            return
        told = f"the smallest that fits is {fits[0]}" if fits else "and with no other"
        assert told in str(error)
        assert served.tensor_parallel not in fits
    else:
        assert served.tensor_parallel in fits


@needs_tables
@settings(max_examples=15)
@given(served=replicas().filter(lambda s: s.weights in ("FP16", "FP8")), gpu=st.sampled_from(sorted(GPUS)))
def test_by_the_timings_only_all_reduces_keep_a_large_prefill_from_getting_faster(served: Served, gpu: str) -> None:
    from llmserve_env.profiles.composing.compose import kernel_tables
    from llmserve_env.profiles.composing.rank import Rank

    if served.weights not in GPUS[gpu].peak_flops_per_s or served.model.experts is not None:
        return
    computing = []
    for ways in (1, 2, 4):
        rank = Rank(replace(served, tensor_parallel=ways), kernel_tables(gpu), GPUS[gpu])
        all_reduces = rank.all_reduces_ms()
        computing.append(float((rank.tokens_ms() - all_reduces)[-1]))
        assert (all_reduces[0] > 0.0) == (ways > 1)
    assert computing == sorted(computing, reverse=True)


@needs_tables
@settings(max_examples=15)
@given(
    count=st.integers(2, 16),
    width=st.sampled_from([256, 512, 1024]),
    tier=st.sampled_from(["FP16", "FP8"]),
    ways=st.sampled_from([1, 2, 4]),
)
def test_by_the_timings_experts_that_are_all_active_take_as_long_as_the_dense_block(
    count: int, width: int, tier: str, ways: int
) -> None:
    from llmserve_env.profiles.composing.compose import compose_profile, kernel_tables

    qwen = find_model("qwen3-30b-a3b")
    dense = Served(replace(qwen, experts=None, ffn=count * width), tier, tensor_parallel=ways)
    mixed = Served(replace(qwen, experts=Experts(count, count, width), ffn=0), tier, tensor_parallel=ways)
    one, other = (compose_profile("h200-141gb", served, "2026-01-01") for served in (dense, mixed))
    router_ms = qwen.layers * kernel_tables("h200-141gb").product_ms("bfloat16", 32, qwen.hidden)
    for batch in ([(1, 1024)], [(64, 1024)]):
        gap_ms = predict(other, tier, batch) - predict(one, tier, batch)
        assert abs(gap_ms - router_ms[0]) < 0.1 * router_ms[0] + 0.01 * predict(one, tier, batch)
    assert predict(other, tier, [], [(8192, 0)]) == pytest.approx(
        predict(one, tier, [], [(8192, 0)]) + np.interp(8192, kernel_tables("h200-141gb").tokens, router_ms), rel=0.01
    )
