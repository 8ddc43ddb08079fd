"""Promises: read from the classes, judged on requests, and only accepted with confidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmserve_env.errors import ConfigError
from llmserve_env.evaluation.statistics import ratio_interval
from llmserve_env.planning.answer.objectives import Objective, is_hopeless, judge, objectives_of
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import Task
from tests.own_tasks import own_task, write_task


def task_with(folder: Path, **service: Any) -> Task:
    fields = own_task()
    fields["workload"]["classes"] = [{"name": "chat", "ttft_slo_ms": None, **service}]
    return load_task(write_task(folder, fields))


def test_limits_are_promised_to_the_target_unless_the_class_names_a_share(tmp_path: Path) -> None:
    found = objectives_of(task_with(tmp_path, ttft_slo_ms=500, tpot_slo_ms=40, e2e_slo_ms=9000, slo_share=0.9), 0.95)
    assert [(one.latency, one.limit_ms, one.share) for one in found] == [
        ("ttft", 500, 0.9),
        ("tpot", 40, 0.9),
        ("e2e", 9000, 0.9),
    ]
    assert objectives_of(task_with(tmp_path, ttft_slo_ms=500), 0.95)[0].share == 0.95


def test_a_percentile_is_a_share_and_a_mean_is_neither(tmp_path: Path) -> None:
    found = objectives_of(task_with(tmp_path, slo_percentiles={"ttft_p99_ms": 2000, "tpot_mean_ms": 40}), 0.95)
    assert [(one.latency, one.share) for one in found] == [("ttft", 0.99), ("tpot", None)]
    assert [one.text for one in found] == ["chat: TTFT p99 up to 2,000 ms", "chat: mean TPOT up to 40 ms"]


def test_a_task_that_promises_nothing_has_no_answer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="promises nothing: give a class ttft_slo_ms"):
        objectives_of(task_with(tmp_path), 0.95)


def test_a_class_without_traffic_cannot_promise(tmp_path: Path) -> None:
    fields = own_task()
    fields["workload"]["classes"].append({"name": "ghost", "ttft_slo_ms": 100})
    task = load_task(write_task(tmp_path, fields))
    with pytest.raises(ConfigError, match=r"classes\[1\]: class 'ghost' promises an SLO but no request belongs to it"):
        objectives_of(task, 0.95)


def test_an_interval_needs_episodes_that_agree() -> None:
    steady = ratio_interval([95.0] * 8, [100.0] * 8, 0.95)
    mixed = ratio_interval([100.0, 90.0] * 4, [100.0] * 8, 0.95)
    assert steady[0] < 0.95 < steady[1], "independent requests alone leave some doubt"
    assert mixed[0] < steady[0]
    assert ratio_interval([5.0] * 4, [5.0] * 4, 0.95)[0] < 1.0, "no miss among few requests is no certainty"


def test_a_share_is_sure_only_above_its_bound() -> None:
    share = Objective("chat", 0, "ttft", 500.0, 0.95)
    exact = judge(share, np.array([[95.0, 100.0]] * 8), 0.95)
    ample = judge(share, np.array([[990.0, 1000.0]] * 8), 0.95)
    assert (exact.is_kept, exact.is_sure) == (True, False)
    assert (ample.is_kept, ample.is_sure) == (True, True)
    mean = judge(Objective("chat", 0, "tpot", 40.0, None), np.array([[390.0, 10.0], [410.0, 10.0]]), 0.95)
    assert mean.value == 40.0
    assert (mean.is_kept, mean.is_sure) == (True, False)


def test_a_configuration_is_dropped_only_if_perfect_seeds_could_not_save_it() -> None:
    objectives = (Objective("chat", 0, "ttft", 500.0, 0.95),)
    assert is_hopeless(objectives, np.array([[[79.0, 100.0]]]), 0.25)
    assert not is_hopeless(objectives, np.array([[[81.0, 100.0]]]), 0.25)
    assert is_hopeless((Objective("chat", 0, "tpot", 40.0, None),), np.array([[[1700.0, 10.0]]]), 0.25)
