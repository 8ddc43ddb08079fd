"""The table of knobs: every other form of an action follows from it, and nothing else counts columns."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from llmserve_env.backends.real.openai_provider import OpenAIProvider
from llmserve_env.backends.real.vllm_provider import VllmProvider
from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.knobs import (
    KNOB,
    KNOBS,
    KNOBS_DTYPE,
    NAMES,
    ServingKnobs,
    default_knobs,
    knob,
    knobs_from_mapping,
    mapping_from_knobs,
    named,
    table_of,
)
from llmserve_env.engine.layout import ENVIRONMENT_DTYPE
from llmserve_env.env.episode import Episode
from llmserve_env.env.features import WINDOW_FEATURES, features_of
from llmserve_env.env.kernels import CONTROL_DTYPE
from llmserve_env.env.spaces import ActionCodec, observation_space
from llmserve_env.errors import InvalidActionError
from llmserve_env.models import ServeAction
from llmserve_env.planning.report.flags import serving
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import parse_task
from llmserve_env.tasks.variants import with_changes
from tests.architecture import python_files
from tools.build_docs import knob_table

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class MoreKnobs(ServingKnobs):
    """The table with an optional knob that the deployment limits."""

    budget_of_tokens: int | None = knob(
        None,
        kind="int",
        low=64,
        high=16_384,
        levels=(256, 1024, 4096, 16_384),
        meaning="tokens per iteration",
        short="token budget",
        scale="log",
        flag="--max-num-batched-tokens",
        is_optional=True,
        limit_field="token_budget",
    )


EXTRA = table_of(MoreKnobs)[-1]
TWO_QUALITIES = {"quality": {"interactive": [0.95, 1.0]}}


def test_every_knob_is_a_field_of_the_wire_the_engine_and_the_matrix() -> None:
    properties = ServeAction.model_json_schema()["properties"]
    assert [name for name in properties if name != "metadata"] == list(NAMES) == [f.name for f in fields(ServingKnobs)]
    assert KNOBS_DTYPE.names == NAMES
    for row in KNOBS:
        assert row.meaning in properties[row.name]["description"]
        assert properties[row.name]["default"] == (None if row.default is None else row.wire(row.default))
        assert ENVIRONMENT_DTYPE[row.name] == np.dtype("f8" if row.kind == "float" else "i8")
        assert f"| `{row.name}` | {row.allowed} |" in knob_table()


def test_the_spaces_have_an_entry_per_offered_knob() -> None:
    for name in ("static_workload", "adversarial_multitenant"):
        task = load_task(name)
        discrete, box = ActionCodec(task).space, ActionCodec(task, "box").space
        assert isinstance(discrete, spaces.MultiDiscrete)
        assert discrete.nvec.tolist() == [len(row.levels) for row in task.action_knobs]
        assert box.shape == (len(task.action_knobs),)
        assert observation_space(task).shape == (len(features_of(task.action_knobs)),)


def test_every_knob_is_in_the_observation_and_costly_ones_show_their_dwell() -> None:
    shown = [name for name, _ in features_of(KNOBS)[len(WINDOW_FEATURES) :]]
    for row in (row for row in KNOBS if not row.is_optional):
        assert any(name.startswith(row.feature) for name in shown), row.name
        assert (f"{row.short}_dwell_left" in shown) == row.is_costly


def test_the_matrix_and_its_named_view_share_their_memory() -> None:
    matrix = np.arange(3.0 * len(KNOBS)).reshape(3, -1)
    for row in KNOBS:
        assert named(matrix)[row.name].tolist() == matrix[:, row.column].tolist()
    named(matrix)["batch_cap"] = -1.0
    assert (matrix[:, KNOB["batch_cap"].column] == -1.0).all()
    control = np.zeros(2, CONTROL_DTYPE)
    control["current"][1] = default_knobs()
    assert control["knobs"]["batch_cap"].tolist() == [0.0, KNOB["batch_cap"].default]


def test_a_live_engine_holds_exactly_what_the_table_says_it_cannot_take() -> None:
    assert set(VllmProvider.unsupported) == {row.name for row in KNOBS if row.live != "running"}
    assert set(OpenAIProvider.unsupported) == set(NAMES) - {"batch_cap", "priority_routing"}


def test_every_launch_flag_of_the_table_is_in_the_command() -> None:
    task = load_task("adversarial_multitenant")
    busy = task.knobs_from_mapping(
        {"speculation_depth": 2, "quantization_tier": "INT8", "priority_routing": True, "batch_cap": 96}
    )
    found = serving(task, busy)
    assert found is not None
    names = [flag.name for flag in found.flags]
    # The precision is that of the checkpoint, which vLLM reads from its config.
    assert {row.flag for row in KNOBS if row.flag and row.kind != "tier"} <= set(names)
    assert "w8a8" in found.model
    assert len(names) == len(set(names))


def test_a_deployment_limits_a_knob_and_says_its_default() -> None:
    task = load_task("static_workload")
    fleet = task.fleet
    limited = EXTRA.on(fleet)
    assert [limited.high, limited.default] == [2048.0, 2048.0]
    assert list(limited.levels) == [256, 1024, 2048]
    with pytest.raises(InvalidActionError, match="budget_of_tokens must be a whole number from 64 to 2048; got 4096"):
        limited.number(4096)
    small = Deployment(costs=fleet.costs, max_running=24)
    cap = KNOB["batch_cap"].on(small)
    assert (cap.default, cap.high, cap.levels) == (24, 24, (8, 16, 24))
    assert named(default_knobs(small))["batch_cap"] == 24


def test_the_tiers_of_the_knob_are_those_of_the_deployment() -> None:
    costs = load_task("static_workload").fleet.costs
    fp8_first = replace(costs, tiers={3: costs.tiers[1], 0: costs.tiers[0]})
    knob = KNOB["quantization_tier"].on(Deployment(costs=fp8_first))
    assert (knob.default, knob.levels) == (3.0, (3.0, 0.0))
    assert [knob.number(value) for value in ("fp8", 3, "FP16", 0)] == [3.0, 3.0, 0.0, 0.0]
    with pytest.raises(InvalidActionError, match=r"quantization_tier must be FP8, FP16 \(or 3, 0\); got 'INT8'"):
        knob.number("INT8")
    assert [name for name, _ in features_of([knob])[len(WINDOW_FEATURES) : -2]] == ["tier_is_fp8", "tier_is_fp16"]


def test_an_episode_starts_in_the_first_tier_and_refuses_one_that_is_not_offered() -> None:
    task = with_changes(load_task("static_workload"), deployment={"tiers": ["INT8", "FP16"]}, reward=TWO_QUALITIES)
    episode = Episode(task)
    episode.reset(1)
    assert episode.batch.engine.state.replicas["tier"].max() == 1
    with pytest.raises(InvalidActionError, match="quantization_tier must be INT8, FP16"):
        episode.step(knobs_from_mapping({"quantization_tier": "INT4"}))
    episode.step(knobs_from_mapping({"quantization_tier": "FP16"}))


def test_without_a_draft_model_nothing_is_speculated() -> None:
    costs = replace(load_task("static_workload").fleet.costs, draft=None)
    knob = KNOB["speculation_depth"].on(Deployment(costs=costs))
    assert (knob.high, knob.levels) == (0, (0,))
    with pytest.raises(InvalidActionError, match="speculation_depth must be a whole number from 0 to 0; got 2"):
        knob.number(2)


def test_a_value_left_to_the_deployment_is_nan_inside_and_null_on_the_wire() -> None:
    table = table_of(MoreKnobs)
    given = knobs_from_mapping({}, table)
    assert np.isnan(given[EXTRA.column])
    assert mapping_from_knobs(given, table)["budget_of_tokens"] is None
    resolved = tuple(row.on(load_task("static_workload").fleet) for row in table)
    assert mapping_from_knobs(knobs_from_mapping({}, resolved), resolved)["budget_of_tokens"] == 2048


def test_an_optional_knob_widens_the_observation_of_the_tasks_that_offer_it_only() -> None:
    offered = [row for row in KNOBS if not row.is_optional]
    assert set(features_of([*offered, EXTRA])) - set(features_of(offered)) == {("budget_of_tokens", "log2 / 14")}


def test_logs_keep_the_offered_knobs_and_give_the_matrix_back() -> None:
    task = load_task("bursty_workload")
    rows = np.array([task.default_knobs, task.knobs_from_mapping({"batch_cap": 64})])
    for action, row in zip(task.action_from_knobs(rows).tolist(), rows, strict=True):
        assert len(action) == len(task.action_knobs)
        assert task.knobs_from_action(action).tolist() == row.tolist()
    left_open = np.full(len(KNOBS), np.nan)
    assert task.action_from_knobs(left_open).tolist() == task.action_from_knobs(rows[0]).tolist()


def test_tasks_without_a_knob_section_activate_what_their_deployment_has() -> None:
    data = json.loads(load_task("static_workload").model_dump_json(by_alias=True))
    del data["knobs"]
    without = {row.name for row in KNOBS if not row.is_optional and not row.needs}
    assert set(parse_task(data).knobs.active) == without
    data["deployment"]["prefill_replicas"] = 1
    assert set(parse_task(data).knobs.active) == without | {"prefill_decode_split"}


def numbered_columns(path: Path) -> list[str]:
    """Places where the table of knobs, or the last axis of a matrix of them, is indexed by a number."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Subscript):
            owner = ast.unparse(node.value)
            axis = node.slice.elts[-1] if isinstance(node.slice, ast.Tuple) else None
            number = (
                node.slice if owner.endswith("KNOBS") else axis if owner.endswith(("knobs", "'current']")) else None
            )
            if isinstance(number, ast.Constant) and isinstance(number.value, int):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}")
    return found


def test_no_code_names_a_knob_by_its_column() -> None:
    paths = python_files(ROOT, "llmserve_env", "benchmarks", "tools", "examples")
    assert [one for path in paths for one in numbered_columns(path)] == []


def test_the_search_for_numbered_columns_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.engine.test_knobs.ROOT", tmp_path)
    path = tmp_path / "bad.py"
    path.write_text('a = view.knobs[:, 0]\nb = KNOBS[1].low\nc = memory["current"][e, 3]\nd = view.knobs[index]\n')
    assert sorted(one.split()[0] for one in numbered_columns(path)) == ["bad.py:1", "bad.py:2", "bad.py:3"]
