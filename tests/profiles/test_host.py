"""Hosts: files with their source, and the fit that makes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from llmserve_env.engine.costs import HostTime
from llmserve_env.engine.tiers import TIER_NUMBERS
from llmserve_env.errors import ProfileError
from llmserve_env.profiles import load_profile
from llmserve_env.profiles.conversion import curve_ps
from llmserve_env.profiles.host import BatchTime, TokenTimes, list_hosts, load_host, save_host
from llmserve_env.profiles.host_fitting import IterationLog, fit_host

SIZE = 4_000


def made_up(has_prefills: bool = True, times_outputs: bool = True, gpu_ms: float = 4.0) -> IterationLog:
    """Iterations of a known host with two clocks, interrupted now and then."""
    rng = np.random.default_rng(0)
    sequences, admissions = rng.integers(1, 120, SIZE), rng.integers(0, 3, SIZE)
    prefill = rng.choice([0, 0, 64, 900], SIZE) * has_prefills
    tokens = sequences + prefill
    base = np.where(tokens > 256, 28.0, np.where(prefill > 0, 13.0, 2.5))
    graph = 2.5 + 0.02 * sequences + 0.5 * admissions
    launch = base + 0.02 * sequences + 0.5 * admissions
    by_profile_ms, attention_ms = gpu_ms + 0.02 * tokens, rng.uniform(0.0, 4.0, SIZE)
    gpu, output = by_profile_ms + 1.2 * attention_ms + 0.1 + 0.007 * sequences, 0.05 + 0.01 * sequences
    at, end_before, scheduled_ms = 0.0, 0.0, []
    for k in range(SIZE):
        scheduled_ms.append(at)
        end = max(max(at + min(launch[k], graph[k]), end_before) + gpu[k], at + launch[k])
        at = max(at + launch[k], end_before) + (output[k - 1] if k else 0.0) + (200.0 if rng.random() < 0.001 else 0.0)
        end_before = end
    return IterationLog(
        np.array(scheduled_ms),
        sequences,
        admissions,
        tokens,
        prefill,
        256,
        np.arange(SIZE) == 0,
        by_profile_ms,
        attention_ms,
        output if times_outputs else None,
    )


def test_the_fit_finds_the_host_behind_the_times_of_scheduling() -> None:
    found = fit_host([made_up()])
    for mode, base_ms in ((found.full_graph, 2.5), (found.piecewise_graph, 13.0), (found.no_graph, 28.0)):
        assert mode.base_ms == pytest.approx(base_ms, abs=0.5)
        assert mode.per_sequence_ms == pytest.approx(0.02, abs=0.01)
    assert found.per_admission_ms == pytest.approx(0.5, abs=0.1)
    assert (found.output.base_ms, found.output.per_sequence_ms) == pytest.approx((0.05, 0.01), abs=1e-3)
    assert found.decode_attention == pytest.approx(1.2, abs=0.1)


def test_a_launch_that_the_gpu_hides_is_found_where_it_was_timed() -> None:
    log = made_up(gpu_ms=60.0)
    bases_ms = {"full graph": 4.0, "piecewise graph": 10.0, "no graph": 20.0}
    base_ms = np.sum([bases_ms[name] * chosen for name, chosen in log.modes().items()], axis=0)
    found = fit_host([replace(log, launch_ms=base_ms + 0.05 * log.sequences + 0.3 * log.admissions)])
    for mode, expected_ms in zip(
        (found.full_graph, found.piecewise_graph, found.no_graph), bases_ms.values(), strict=True
    ):
        assert (mode.base_ms, mode.per_sequence_ms) == pytest.approx((expected_ms, 0.05), rel=0.05)
    assert found.per_admission_ms == pytest.approx(0.3, abs=0.02)


def test_with_a_known_gpu_only_the_launches_are_fitted() -> None:
    gpu = (BatchTime(base_ms=0.1, per_sequence_ms=0.007), 1.2)
    found = fit_host([made_up()], gpu)
    assert (found.sampling, found.decode_attention) == gpu
    for mode, base_ms in ((found.full_graph, 2.5), (found.piecewise_graph, 13.0), (found.no_graph, 28.0)):
        assert mode.base_ms == pytest.approx(base_ms, abs=0.5)
        assert mode.per_sequence_ms == pytest.approx(0.02, abs=0.01)
    # What the given GPU does not take, the launches must.
    slower = fit_host([made_up()], (gpu[0], 0.5))
    assert slower.decode_attention == 0.5 and slower.full_graph.base_ms > found.full_graph.base_ms


def test_outputs_that_were_not_timed_count_as_part_of_the_launch() -> None:
    timed, untimed = fit_host([made_up()]), fit_host([made_up(times_outputs=False)])
    assert untimed.output.base_ms == untimed.output.per_sequence_ms == 0.0
    for mode in ("piecewise_graph", "no_graph"):
        with_output, without = getattr(timed, mode), getattr(untimed, mode)
        # About sixty sequences are in the iteration before, whose output is taken in.
        extra_ms = (
            without.base_ms + 60 * without.per_sequence_ms - with_output.base_ms - 60 * with_output.per_sequence_ms
        )
        assert extra_ms == pytest.approx(0.65, abs=0.3)


def test_a_mode_without_iterations_is_named() -> None:
    with pytest.raises(ProfileError, match="0 iterations of mode 'piecewise graph' are too few"):
        fit_host([made_up(has_prefills=False)])


def test_a_host_scales_decode_attention_and_nothing_else() -> None:
    costs = load_profile("h200-141gb.llama-3-8b").costs()
    slower = load_host(list_hosts()[0]).model_copy(update={"decode_attention": 1.5}).gpu_costs(costs)
    before, after = costs.tiers[0], slower.tiers[0]
    assert after.decode_attention[0].ps == tuple(round(1.5 * ps) for ps in before.decode_attention[0].ps)
    assert replace(after, decode_attention=before.decode_attention) == before


def test_what_the_engines_products_take_comes_on_top_of_its_tier_alone() -> None:
    costs = load_profile("h200-141gb.llama-3-8b").costs()
    fp8 = TIER_NUMBERS["FP8"]
    slower = TokenTimes(tokens=(16, 17, 64), ms=(0.25, 1.0, 0.25))
    host = load_host(list_hosts()[0]).model_copy(update={"products": {"FP8": slower}, "decode_attention": 1.0})
    found = host.gpu_costs(costs)
    assert {number: found.tiers[number] == tier for number, tier in costs.tiers.items()} == {
        number: number != fp8 for number in costs.tiers
    }
    for tokens, extra_ms in ((1, 0.25), (16, 0.25), (17, 1.0), (64, 0.25), (2048, 0.25)):
        beyond_ps = curve_ps(found.tiers[fp8].gemm, tokens) - curve_ps(costs.tiers[fp8].gemm, tokens)
        # A curve never falls, so a step down may be kept from below.
        assert beyond_ps >= 1e9 * extra_ms - 1e6
        assert beyond_ps <= 1e9 * max(extra_ms, 1.0)
    assert list(found.tiers[fp8].gemm.ps) == sorted(found.tiers[fp8].gemm.ps)


@pytest.mark.parametrize("fields", [{"tokens": (4, 2), "ms": (0.1, 0.2)}, {"tokens": (2, 4), "ms": (0.1,)}])
def test_times_over_tokens_are_pairs_in_order(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="tokens must increase, with one time each"):
        TokenTimes(**fields)


@pytest.mark.parametrize("name", list_hosts())
def test_shipped_hosts_are_valid_and_say_where_they_come_from(name: str) -> None:
    host = load_host(name)
    assert host.name == name
    assert "python -m" in host.provenance
    assert host.costs().no_graph.base_ps > host.costs().full_graph.base_ps > 0


def test_a_host_comes_back_as_it_was_written(tmp_path: Path) -> None:
    host = load_host(list_hosts()[0]).model_copy(update={"name": "mine"})
    assert load_host(save_host(host, tmp_path)) == host
    assert host.costs().output == HostTime(round(host.output.base_ms * 1e9), round(host.output.per_sequence_ms * 1e9))


def test_an_unknown_host_and_a_bad_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="no host 'mine'; choose one of"):
        load_host("mine")
    path = tmp_path / "bad.json"
    path.write_text('{"name": "bad"}')
    with pytest.raises(ProfileError, match=r"bad\.json is not a valid host: machine"):
        load_host(path)


def test_beside_its_own_model_a_host_stays_as_it_was_recorded() -> None:
    host = load_host("xeon-h200-vllm-0.26")
    for name in ("h200-141gb.llama-3-8b", "a100-40gb.llama-3-8b"):
        assert host.for_model(load_profile(name).model) == host


def test_launches_grow_with_what_a_model_launches_and_scheduling_does_not() -> None:
    host = load_host("xeon-h200-vllm-0.26")
    dense, experts = (host.for_model(load_profile(f"h200-141gb.{m}").model) for m in ("qwen3-32b", "qwen3-30b-a3b"))
    assert dense.full_graph == experts.full_graph == host.full_graph
    beyond_ms = host.piecewise_graph.base_ms - host.full_graph.base_ms
    assert dense.piecewise_graph.base_ms == pytest.approx(host.full_graph.base_ms + 2 * beyond_ms)
    # Launches without a graph that were recorded on that machine: about 64 ms, and 58 to 75 ms.
    assert dense.no_graph.base_ms == pytest.approx(64.0, rel=0.05)
    assert experts.no_graph.base_ms == pytest.approx(67.0, rel=0.1)
    assert dense.products == {}


def test_a_host_that_does_not_say_what_it_served_holds_beside_any_model() -> None:
    host = load_host("xeon-h200-vllm-0.26").model_copy(update={"served": None})
    assert host.for_model(load_profile("h200-141gb.qwen3-32b").model) == host
