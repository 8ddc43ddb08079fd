"""Tuning finds good settings, stops when it gains nothing, and keeps what it found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmserve_env.errors import ConfigError, WeightsNotFoundError
from llmserve_env.fleet.corrected import REPLICAS_SHARE, CorrectedRule, action_names
from llmserve_env.fleet.fluid.episodes import FluidEpisodes
from llmserve_env.fleet.fluid.worlds import Worlds
from llmserve_env.fleet.learned import CorrectionNetwork, load_corrections
from llmserve_env.fleet.rules.constant import Constant
from llmserve_env.fleet.rules.informed import Informed
from llmserve_env.fleet.rules.registry import SCALERS
from llmserve_env.fleet.rules.rule import RuleBatch, rule_settings
from llmserve_env.fleet.rules.setting import Setting
from llmserve_env.fleet.task import TASKS, load_fleet_task
from llmserve_env.fleet.tuned import Settings, tuned_settings
from llmserve_env.fleet.tuning import (
    RANDOM_SETTINGS,
    ROUND,
    ROUNDS,
    Race,
    Search,
    Tuned,
    begin_search,
    guiding_usd,
    net_usd,
    play_settings,
    tune_rule,
)
from tests.fleet.worlds import plain_calibration, short_task, traffic_of

HILL = {"x": Setting(0.0, 0.0, 10.0), "y": Setting(1.0, 0.1, 100.0, "log"), "n": Setting(1, 1, 9, "whole")}


def hill(candidates: Sequence[Settings]) -> np.ndarray:
    """Highest, at 100, for x = 3, y = 30 and n = 7."""
    return np.array([100 - (c["x"] - 3) ** 2 - 9 * np.log(c["y"] / 30) ** 2 - (c["n"] - 7) ** 2 for c in candidates])


def searched(seed: int = 0) -> tuple[Settings, float, int]:
    search = Search(HILL, seed)
    while True:
        found = search.round(hill)
        if search.is_over:
            return found.settings, found.usd, found.tried


def test_the_search_climbs_a_hill_and_stops_after_a_thousand_settings_without_gain() -> None:
    settings, usd, tried = searched()
    assert usd > 99.9
    assert settings["n"] == 7.0
    assert tried >= 1 + RANDOM_SETTINGS + ROUNDS * ROUND


def test_the_same_search_again_finds_the_same() -> None:
    assert searched() == searched()


def test_every_setting_tried_lies_in_its_range() -> None:
    search = Search(HILL)

    def check(candidates: Sequence[Settings]) -> np.ndarray:
        for candidate in candidates:
            assert all(HILL[name].low <= value <= HILL[name].high for name, value in candidate.items())
        return hill(candidates)

    for _ in range(4):
        search.round(check)


def test_a_race_values_its_winners_on_every_world() -> None:
    task, worlds = short_task("elastic_plain"), Worlds.of([traffic_of("elastic_plain", seed) for seed in (1, 2)])
    candidates = [{"share": share} for share in (0.5, 1.0, 1.3, 1.6, 2.5)]
    values = Race(task, worlds, plain_calibration(), Constant)(candidates)
    best = int(values.argmax())
    alone = play_settings(task, worlds, plain_calibration(), Constant, [candidates[best]])
    assert values[best] == pytest.approx(alone[0])


def test_a_search_hands_on_its_best_settings_from_the_best_on() -> None:
    search = Search(HILL)
    best = search.round(hill).settings
    handed_on = search.best(5)
    assert handed_on[0] == best
    heights = hill(handed_on)
    assert list(heights) == sorted(heights, reverse=True)


def constant_values(measure: Callable[[FluidEpisodes], np.ndarray], *shares: float) -> np.ndarray:
    """What a measure says about constant fleets of these shares of the usual size."""
    task, worlds = short_task("elastic_plain"), Worlds.of([traffic_of("elastic_plain")])
    candidates = [{"share": share} for share in shares]
    return play_settings(task, worlds, plain_calibration(), Constant, candidates, measure)


def test_among_fleets_that_fail_dollars_ask_for_the_smallest_and_the_guide_for_the_largest() -> None:
    shares = (0.5, 0.6, 0.7)
    usd, guide = constant_values(net_usd, *shares), constant_values(guiding_usd, *shares)
    assert usd[0] > usd[1] > usd[2]
    assert guide[0] < guide[1] < guide[2]


def test_a_fleet_above_the_last_rung_is_worth_its_dollars_to_the_guide() -> None:
    assert constant_values(guiding_usd, 2.0) == pytest.approx(constant_values(net_usd, 2.0))


def test_tuning_is_led_over_the_fleets_that_earn_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dollars fall with the size of a fleet until it keeps its promises, which only large ones of many settings do."""
    settings = rule_settings(SCALERS["informed"], short_task("elastic_plain"))

    def play(*args: Any) -> np.ndarray:
        candidates, measure = args[4], args[5]
        units = np.array(
            [[each.unit(row[name]) for name, each in settings.items() if each.high > each.low] for row in candidates]
        )
        size = np.clip(units, 0.0, 0.9).mean(axis=1)
        if measure is guiding_usd:
            return np.asarray(size)
        return np.asarray(np.where(size > 0.75, 5.0 - size, -size))

    monkeypatch.setattr("llmserve_env.fleet.tuning.play_settings", play)
    reported: list[Tuned] = []
    worlds = Worlds.of([traffic_of("elastic_plain")])
    found = tune_rule(short_task("elastic_plain"), worlds, plain_calibration(), "informed", reported.append)
    assert found.usd > 4.0
    assert found == reported[-1]
    assert reported[0].tried > RANDOM_SETTINGS + ROUNDS * ROUND, "the settings of the guide are tried ones too"


@pytest.mark.parametrize("name", TASKS)
def test_no_correction_is_the_informed_rule(name: str) -> None:
    task, worlds = short_task(name), Worlds.of([traffic_of(name)])
    calibration = plain_calibration(any(pool.role == "prefill" for pool in task.pools))
    settings = {key: setting.default for key, setting in rule_settings(Informed, task).items()}
    plain = FluidEpisodes(task, worlds, calibration, np.zeros(1, np.int64))
    other = FluidEpisodes(task, worlds, calibration, np.zeros(1, np.int64))
    rule, corrected = RuleBatch(Informed, task, [settings]), CorrectedRule(task, settings, 1)
    while not plain.is_over:
        plain.step(rule.decide(plain.observe()))
        features = corrected.look(other.observe())
        assert features.shape == (1, corrected.num_features)
        other.step(corrected.decide(np.zeros((1, corrected.num_actions))))
    assert plain.net_usd[0] == pytest.approx(other.net_usd[0])


def test_replicas_that_are_there_stay_as_far_as_the_policy_keeps_them() -> None:
    task = short_task("elastic_fleet")
    rule = CorrectedRule(task, {"weight_request_rps": 0.0, "base_share": 0.25, "margin": 0.0}, 1)
    episodes = FluidEpisodes(task, Worlds.of([traffic_of("elastic_fleet")]), plain_calibration(), np.zeros(1, np.int64))
    there = episodes.replicas.up[0, 0]
    unit = REPLICAS_SHARE * task.pools[0].usual_replicas
    found = {}
    for kept in (-1.0, 0.0, 1.0, 2.0 * there / unit):
        rule.look(episodes.observe())
        corrections = np.zeros((1, rule.num_actions))
        corrections[0, action_names(task).index("any kept")] = kept
        found[kept] = rule.decide(corrections).serving[0, 0]
    assert list(found.values()) == [2.0, 2.0, 2.0 + round(unit), there]


def test_rules_are_tuned_under_the_token_budget_of_the_surrogate() -> None:
    task = short_task("elastic_plain")
    tried: list[Settings] = []
    search = begin_search(task, 1024, "hpa")

    def note(candidates: Sequence[Settings]) -> np.ndarray:
        tried.extend(candidates)
        return np.zeros(len(candidates))

    best = search.round(note).settings
    assert {each["token_budget"] for each in tried} == {1024.0}
    episodes = FluidEpisodes(task, Worlds.of([traffic_of("elastic_plain")]), plain_calibration(), np.zeros(1, np.int64))
    assert RuleBatch(SCALERS["hpa"], task, [best]).decide(episodes.observe()).one().token_budget == 1024


@pytest.mark.parametrize("name", TASKS)
def test_any_correction_is_a_decision_of_the_task(name: str) -> None:
    task, worlds = short_task(name), Worlds.of([traffic_of(name)])
    calibration = plain_calibration(any(pool.role == "prefill" for pool in task.pools))
    rule = CorrectedRule(task, {}, 1)
    episodes = FluidEpisodes(task, worlds, calibration, np.zeros(1, np.int64))
    rng = np.random.default_rng(0)
    while not episodes.is_over:
        rule.look(episodes.observe())
        decisions = rule.decide(8.0 * rng.standard_normal((1, rule.num_actions)))
        task.check(decisions.one())
        episodes.step(decisions)


def test_the_network_is_what_its_layers_say() -> None:
    layers = [(np.array([[1.0, 0.0], [0.0, 2.0]]), np.zeros(2)), (np.array([[1.0, -1.0]]), np.array([0.5]))]
    found = CorrectionNetwork(layers, {})(np.array([[0.3, -0.2]]))
    assert found[0, 0] == pytest.approx(np.tanh(0.3) - np.tanh(-0.4) + 0.5)


def test_missing_weights_name_the_command_that_makes_them(tmp_path: Path) -> None:
    with pytest.raises(WeightsNotFoundError, match="llmserve fleet train elastic_fleet"):
        load_corrections(load_fleet_task("elastic_fleet"), tmp_path)


def test_missing_settings_name_the_command_that_makes_them() -> None:
    unknown = load_fleet_task("elastic_plain").model_copy(update={"version": 999})
    with pytest.raises(ConfigError, match="llmserve fleet tune elastic_plain"):
        tuned_settings(unknown, "hpa")


@pytest.mark.parametrize("name", sorted(SCALERS))
@pytest.mark.parametrize("task_name", TASKS)
def test_every_rule_has_settings_on_every_task(task_name: str, name: str) -> None:
    settings = rule_settings(SCALERS[name], load_fleet_task(task_name))
    assert all(each.low <= each.default <= each.high for each in settings.values())
