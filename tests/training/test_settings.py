from __future__ import annotations

from pathlib import Path

import pytest

from llmserve_env.errors import ConfigError
from llmserve_env.tasks.catalog import BENCHMARK, load_task
from llmserve_env.training.settings import hyper_parameters, run_name


@pytest.mark.parametrize("name", [*BENCHMARK, "generalist", "h200_live"])
def test_shipped_values_are_valid(name: str) -> None:
    h = hyper_parameters(name, {})
    assert h.num_envs * h.n_steps % h.batch_size == 0


def test_a_given_value_wins() -> None:
    assert hyper_parameters("static_workload", {"gamma": 0.5}).gamma == 0.5


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="gae_lambda"):
        hyper_parameters("static_workload", {"gama": 0.5})


def test_a_value_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="gamma"):
        hyper_parameters("static_workload", {"gamma": 1.5})


def test_values_of_a_task_replace_the_defaults(tmp_path: Path) -> None:
    base = hyper_parameters("static_workload", {}).model_dump(mode="json")
    import yaml

    path = tmp_path / "ppo.yaml"
    path.write_text(yaml.safe_dump({"defaults": base, "tasks": {"mine": {"n_epochs": 3}}}), encoding="utf-8")
    assert hyper_parameters("mine", {}, path).n_epochs == 3
    assert hyper_parameters("other", {}, path).n_epochs == base["n_epochs"]


def test_one_task_names_its_folder_and_several_make_a_generalist() -> None:
    assert run_name((load_task(1),)) == "static_workload"
    assert run_name((load_task(1), load_task(2))) == "generalist"
