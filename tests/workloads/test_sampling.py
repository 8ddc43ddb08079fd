from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmserve_env.errors import ConfigError
from llmserve_env.request_table import RequestTable
from llmserve_env.units import NEVER_PS, PS_PER_MS, PS_PER_S
from llmserve_env.workloads import parse_workload, sample
from tests.workloads.specs import ADVERSARIAL, BURSTY, CHATS, STATIC, data, workload

COLUMNS = [field.name for field in fields(RequestTable)]
EXAMPLES = {"static": STATIC, "bursty": BURSTY, "adversarial": ADVERSARIAL, "chats": CHATS}


def assert_equal(a: RequestTable, b: RequestTable, but: tuple[str, ...] = ()) -> None:
    for name in COLUMNS:
        if name not in but:
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def pooled(text: str, episodes: int = 20) -> list[RequestTable]:
    spec = parse_workload(data(text))
    return [sample(spec, seed) for seed in range(episodes)]


def column(tables: list[RequestTable], name: str) -> Any:
    return np.concatenate([getattr(table, name) for table in tables])


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_same_seed_gives_the_same_table(name: str) -> None:
    first, second = (sample(parse_workload(data(EXAMPLES[name])), 5) for _ in range(2))
    assert_equal(first, second)


@pytest.mark.parametrize("name", EXAMPLES)
def test_another_seed_gives_other_arrivals_and_lengths(name: str) -> None:
    spec = parse_workload(data(EXAMPLES[name]))
    a, b = sample(spec, 0), sample(spec, 1)
    assert len(np.intersect1d(a.arrival_at_ps, b.arrival_at_ps)) < 5
    n = min(len(a), len(b))
    assert np.mean(a.output_tokens[:n] == b.output_tokens[:n]) < 0.1


def test_another_process_draws_the_same_table() -> None:
    program = (
        "import hashlib\n"
        "from llmserve_env.workloads import parse_workload, sample\n"
        "from tests.workloads.specs import BURSTY, data\n"
        "t = sample(parse_workload(data(BURSTY)), 11)\n"
        "columns = (t.arrival_at_ps, t.output_tokens, t.acceptance)\n"
        "print(hashlib.sha256(b''.join(column.tobytes() for column in columns)).hexdigest())"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout != ""


def test_adding_a_source_leaves_the_others_alone() -> None:
    alone = data(CHATS)
    more = data(CHATS)
    more["sources"].append(
        {**more["sources"][0], "tenant": "late", "arrivals": {"kind": "gamma", "rate_rps": 3, "cv": 2.0}}
    )
    both = sample(parse_workload(more), 3)
    assert_equal(sample(parse_workload(alone), 3), both.take(both.tenant == 0))
    assert np.count_nonzero(both.tenant == 1) > 100


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "acceptance": ({"acceptance": {"base": 0.1, "drift_amplitude": 0.05}}, "acceptance"),
    "outputs": ({"output_tokens": {"kind": "uniform", "low": 1, "high": 9}}, "output_tokens"),
    "prompts": ({"prompt_tokens": {"kind": "uniform", "low": 1, "high": 9}}, "prompt_tokens"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changing_one_property_leaves_the_others_alone(name: str) -> None:
    change, changed_column = CHANGES[name]
    kind = {"output_tokens": {"kind": "lognormal", "mu": 4.0, "sigma": 1.0, "low": 1, "high": 1000}}
    before, after = sample(workload(kind=kind), 9), sample(workload(kind=kind | change), 9)
    assert_equal(before, after, but=(changed_column,))
    assert not np.array_equal(getattr(before, changed_column), getattr(after, changed_column))


def test_changing_one_kind_leaves_the_requests_of_other_kinds_alone() -> None:
    plain, changed = data(ADVERSARIAL), data(ADVERSARIAL)
    first, *rest = changed["sources"][0]["kinds"]
    changed["sources"][0]["kinds"] = [{**first, "prompt_tokens": {"kind": "constant", "value": 40}}, *rest]
    before, after = (sample(parse_workload(description), 2) for description in (plain, changed))
    others = (before.priority != 0) | (before.tenant != 0)
    assert_equal(before.take(others), after.take(others))


def test_static_requests_are_as_described() -> None:
    tables = pooled(STATIC, 40)
    prompts, outputs = column(tables, "prompt_tokens"), column(tables, "output_tokens")
    assert len(prompts) / len(tables) == pytest.approx(2000, rel=0.02)
    assert (prompts.min(), prompts.max()) == (64, 128)
    assert prompts.mean() == pytest.approx(96, rel=0.01)
    assert outputs.mean() == pytest.approx(450, rel=0.03)
    assert outputs.min() >= 16
    assert outputs.max() <= 2048
    assert set(column(tables, "ttft_slo_ps")) == {500 * PS_PER_MS}
    assert set(column(tables, "patience_ps")) == {20 * PS_PER_S}
    assert set(column(tables, "acceptance")) == {0.8}
    assert set(column(tables, "session_id")) == set(column(tables, "prefix_id")) == {-1}


def test_bursty_requests_are_as_described() -> None:
    tables = pooled(BURSTY)
    prompts = column(tables, "prompt_tokens")
    assert (prompts.min(), prompts.max()) == (32, 8192)
    assert np.quantile(prompts, [0.25, 0.5, 0.9]) == pytest.approx(
        np.exp(5.2 + 1.3 * np.array([-0.6745, 0, 1.2816])), rel=0.03
    )
    assert column(tables, "output_tokens").mean() == pytest.approx(200, rel=0.03)


def test_adversarial_requests_are_as_described() -> None:
    tables = pooled(ADVERSARIAL)
    priority, prompts = column(tables, "priority"), column(tables, "prompt_tokens")
    outputs, tenants = column(tables, "output_tokens"), column(tables, "tenant")
    long = prompts >= 4096
    assert np.bincount(priority) / len(priority) == pytest.approx([0.2, 0.5, 0.3], abs=0.01)
    assert long.mean() == pytest.approx(0.3, abs=0.01)
    assert prompts[priority == 0].max() <= 128
    assert np.all(long | (prompts <= 128))
    assert outputs[~long].mean() == pytest.approx(64, rel=0.05)
    assert outputs[long].mean() == pytest.approx(128, rel=0.05)
    assert len(set(column(tables, "ttft_slo_ps")[priority == 2])) == 1
    assert (
        column(tables, "ttft_slo_ps")[priority == 2][0] == column(tables, "patience_ps")[priority == 2][0] == NEVER_PS
    )
    assert np.mean(tenants == 0) * len(tenants) / len(tables) == pytest.approx(6000, rel=0.02)


def test_acceptance_falls_with_the_prompt_and_drifts() -> None:
    acceptance = {"base": 0.6, "per_prompt_doubling": -0.05, "drift_amplitude": 0.1, "drift_period_s": 40}
    kind = {"prompt_tokens": {"kind": "uniform", "low": 64, "high": 2048}, "acceptance": acceptance}
    table = sample(workload(kind=kind), 1)
    drift = table.acceptance - (0.6 - 0.05 * np.log2(table.prompt_tokens / 128))
    assert drift.max() == pytest.approx(0.1, abs=0.002)
    assert drift.min() == pytest.approx(-0.1, abs=0.002)
    angle = 2 * np.pi * table.arrival_at_ps / PS_PER_S / 40
    waves = np.column_stack((np.sin(angle), np.cos(angle)))
    amplitudes, *_ = np.linalg.lstsq(waves, drift)
    assert np.abs(drift - waves @ amplitudes).max() < 1e-6


def test_each_kind_has_its_own_acceptance() -> None:
    description = data(ADVERSARIAL)
    for priority, source_kind in ((0, 0), (1, 2)):
        description["sources"][0]["kinds"][source_kind]["acceptance"] = {"base": 0.9 - 0.1 * priority}
    table = sample(parse_workload(description), 0)
    assert set(table.acceptance[table.priority == 0]) == {0.9}
    long_batch = (table.priority == 1) & (table.prompt_tokens >= 4096)
    assert set(table.acceptance[long_batch]) == {0.8}
    rest = table.take((table.priority == 2) | ((table.priority == 1) & ~long_batch))
    np.testing.assert_allclose(rest.acceptance, 0.45 - 0.02 * np.log2(rest.prompt_tokens / 128))


def test_the_phase_of_the_drift_belongs_to_the_seed() -> None:
    kind = {"acceptance": {"base": 0.5, "drift_amplitude": 0.1, "drift_period_s": 1000}}
    first = [sample(workload(kind=kind), seed).acceptance[0] for seed in range(20)]
    assert np.std(first) > 0.03


def test_outputs_end_at_the_context_limit() -> None:
    kind = {
        "prompt_tokens": {"kind": "uniform", "low": 1, "high": 999},
        "output_tokens": {"kind": "constant", "value": 600},
    }
    table = sample(workload(kind=kind, max_total_tokens=1000), 0)
    np.testing.assert_array_equal(table.output_tokens, np.minimum(600, 1000 - table.prompt_tokens))
    assert table.output_tokens.min() >= 1


def test_two_sources_can_belong_to_one_tenant() -> None:
    description = data(STATIC)
    source = description["sources"][0]
    description["sources"] = [source, {**source, "tenant": "other"}, source]
    spec = parse_workload(description)
    assert spec.tenants == ("app", "other")
    assert np.bincount(sample(spec, 0).tenant).tolist() == pytest.approx([4000, 2000], rel=0.1)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ConfigError, match="seed must be 0 or greater; got -1"):
        sample(workload(), -1)


RATES = st.floats(0, 50)
ARRIVALS = st.one_of(
    st.fixed_dictionaries({"kind": st.just("poisson"), "rate_rps": RATES}),
    st.fixed_dictionaries({"kind": st.just("gamma"), "rate_rps": RATES, "cv": st.floats(0.1, 8)}),
    st.fixed_dictionaries(
        {
            "kind": st.just("bursts"),
            "base_rps": RATES,
            "burst_rps": RATES,
            "period_s": st.floats(3, 100),
            "burst_s": st.floats(0.1, 1),
            "jitter_s": st.floats(0, 1),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("rate_series"),
            "step_s": st.floats(0.1, 50),
            "rates_rps": st.lists(RATES, min_size=1, max_size=20),
            "cv": st.floats(0.2, 5),
            "cyclic": st.just(True),
            "random_start": st.booleans(),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("on_off"),
            "on_rps": RATES,
            "on_s": st.floats(0.1, 30),
            "off_s": st.floats(0.1, 30),
            "dwell": st.just("lognormal"),
            "on_cv": st.floats(0.1, 3),
        }
    ),
)
SESSIONS = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "turns": st.builds(lambda high: {"kind": "uniform", "low": 1, "high": high}, st.integers(1, 8)),
            "think_s": st.builds(lambda high: {"kind": "uniform", "low": 0.0, "high": high}, st.floats(0, 30)),
            "prefix_tokens": st.integers(0, 300),
            "prefix_groups": st.integers(1, 4),
            "history_s": st.integers(0, 60),
        }
    ),
)


@settings(max_examples=60)
@given(ARRIVALS, SESSIONS, st.integers(1, 120), st.integers(400, 3000), st.integers(0, 2**63))
def test_every_table_keeps_within_its_spec(
    arrivals: dict[str, Any], sessions: dict[str, Any] | None, horizon_s: int, max_total_tokens: int, seed: int
) -> None:
    kind = {
        "prompt_tokens": {"kind": "uniform", "low": 1, "high": 99},
        "output_tokens": {"kind": "lognormal", "mu": 4, "sigma": 2, "low": 1, "high": 5000},
        "acceptance": {"base": 0.5, "per_prompt_doubling": 0.02, "drift_amplitude": 0.2},
    }
    spec = workload(arrivals, kind, sessions=sessions, horizon_s=horizon_s, max_total_tokens=max_total_tokens)
    table = sample(spec, seed)
    assert_equal(table, sample(spec, seed))
    assert np.all((table.arrival_at_ps >= 0) & (table.arrival_at_ps < horizon_s * PS_PER_S))
    assert np.all(table.prompt_tokens + table.output_tokens <= max_total_tokens)
    assert np.all((table.session_id >= 0) == (sessions is not None))
    assert np.all((table.prefix_id >= 0) == (table.prefix_tokens > 0))
