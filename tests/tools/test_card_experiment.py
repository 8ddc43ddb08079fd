"""The experiment on the card, without a card: what is kept, and how the two columns are compared."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmserve_env.agents.constant import ConstantAgent, tuned_knobs
from llmserve_env.backends.real.tasks import H200_LIVE, REAL_TASKS, real_task
from llmserve_env.engine.knobs import KNOB, named
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.errors import ConfigError
from llmserve_env.evaluation.evaluate import result_of
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.seeds import REPORTED_SEEDS
from llmserve_env.profiles.host import load_host
from llmserve_env.request_outcomes import Ending
from llmserve_env.tasks.variants import with_changes
from tools.card_experiment.__main__ import main
from tools.card_experiment.again import pairs_of
from tools.card_experiment.comparison import compare, figures_of, fleet_of, score_of
from tools.card_experiment.engines import ENGINES
from tools.card_experiment.health import longest_silence
from tools.card_experiment.hosts import SCALES, rewards_of
from tools.card_experiment.overhead import as_text, overhead_of
from tools.card_experiment.playing import task_of
from tools.card_experiment.policies import POLICIES, policy_of
from tools.card_experiment.records import is_kept, load, save
from tools.card_experiment.text import as_markdown

PLAN = ENGINES["cpu"]
CARD = Path(__file__).resolve().parents[2] / "recordings" / "h200_card"
FACTS = {"engine": "cpu", "task": "tiny_server", "task_version": 1, "num_blocks": 511, "block_tokens": 32}


def simulated(policy: str, seed: int, windows: int = 6) -> PlayedEpisode:
    (played,) = play(policy_of(policy, PLAN), task_of(PLAN, windows), [seed])
    return played


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Episodes that the simulator has played stand in for an engine's."""
    for policy in ("vllm", "static", "heuristic"):
        for seed in (1, 2):
            save(tmp_path, {**FACTS, "policy": policy, "seed": seed}, simulated(policy, seed))
    return tmp_path


def test_the_live_tasks_offer_only_knobs_that_a_running_engine_takes() -> None:
    task = real_task(H200_LIVE)
    assert all(KNOB[name].live == "running" for name in task.knobs.active)
    assert task.steps >= 60 and task.deployment.replicas == 1
    assert {real_task(name).id for name in REAL_TASKS} == set(REAL_TASKS)


def test_the_h200_task_is_served_in_the_simulator() -> None:
    task = real_task(H200_LIVE)
    (played,) = play(policy_of("vllm", ENGINES["h200"]), task, [1])
    assert named(played.trajectory.knobs)["token_budget"][0] == 8_192
    finished = (played.requests.ending == Ending.FINISHED).mean()
    assert finished > 0.9 and len(played.requests) > 1_000


def test_what_is_kept_is_what_was_played(recorded: Path) -> None:
    found = {record.key: record for record in load(recorded)}
    assert set(found) == {(policy, seed) for policy in ("vllm", "static", "heuristic") for seed in (1, 2)}
    record, played = found[("heuristic", 2)], simulated("heuristic", 2)
    assert np.array_equal(record.requests.ttft_ms, played.requests.ttft_ms, equal_nan=True)
    assert np.array_equal(record.windows["knobs"], played.trajectory.knobs[:6])
    assert record.facts["windows"] == 6


def test_both_columns_their_errors_and_their_order_are_reported(recorded: Path, capsys: Any) -> None:
    assert main(["report", "--source", str(recorded), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["live"]) == set(found["simulated"]) == {"vllm", "static", "heuristic"}
    cell = found["live"]["vllm"]["ttft_mean_ms"]
    assert 0.0 < cell["low"] <= cell["mean"] <= cell["high"]
    assert -1.0 <= found["spearman"] <= 1.0 or np.isnan(found["spearman"])
    assert main(["report", "--source", str(recorded)]) == 0
    assert "| policy | figure | on the engine | in the simulator |" in capsys.readouterr().out
    assert main(["report", "--source", str(recorded), "--short"]) == 0
    assert len([line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]) == 2 + len(
        found["live"]
    )


def test_an_engine_that_is_slower_than_the_simulator_shows_as_an_error(recorded: Path) -> None:
    records = load(recorded)
    task = task_of(PLAN, 6)
    plain = compare(task, PLAN, records)
    slow = [replace(r, requests=replace(r.requests, ttft_ms=2.0 * r.requests.ttft_ms)) for r in records]
    late = compare(task, PLAN, slow)
    for policy in plain.live:
        assert late.live[policy]["ttft_mean_ms"].mean == pytest.approx(2 * plain.live[policy]["ttft_mean_ms"].mean)
        assert late.errors[policy]["ttft_mean_ms"] < plain.errors[policy]["ttft_mean_ms"]
        assert late.simulated[policy] == plain.simulated[policy]
    assert "Means and 95 %" in as_markdown(late)


def test_a_client_that_took_nothing_in_for_a_while_shows(recorded: Path) -> None:
    record = load(recorded)[0]
    busy = replace(record, windows={**record.windows, "active_requests": np.full(6, 40.0)})
    at_s, length_s = longest_silence(busy, 1.0)
    # Everything after the first second comes two seconds later.
    late_ms = np.where(record.requests.arrival_s + record.requests.ttft_ms / 1e3 > 1.0, 2_000.0, 0.0)
    held = replace(record.requests, ttft_ms=record.requests.ttft_ms + late_ms, e2e_ms=np.full(len(late_ms), np.nan))
    found = longest_silence(replace(busy, requests=held), 1.0)
    assert at_s >= 0.0 and length_s < 2.0 <= found[1] and found[0] <= 1.0
    assert longest_silence(record, 1.0) == (0.0, 0.0) or record.windows["active_requests"].max() >= 20


def test_a_request_is_good_only_if_it_keeps_both_promises() -> None:
    played = simulated("vllm", 1)
    promised = replace(played.requests, ttft_slo_ms=np.full(len(played.requests), 1e9))
    slow = replace(promised, tpot_slo_ms=np.full(len(played.requests), 1e-6))
    figures = partial(figures_of, task_of(PLAN, 6), windows=played.trajectory.terms)
    assert figures(promised)["attainment"] == 1.0
    assert figures(slow)["attainment"] < 0.2


def test_a_score_from_recorded_windows_is_the_score_of_the_episode() -> None:
    task = real_task(H200_LIVE)
    (played,) = play(policy_of("tuned", ENGINES["h200"]), task, [1])
    assert score_of(task, played.trajectory.terms) == pytest.approx(result_of("tuned", played).score)


def test_the_trained_policy_beats_the_tuned_constant_in_the_simulator_also_beside_another_cpu() -> None:
    for scale in (0.8, 1.0, 1.25):
        task = with_changes(real_task(H200_LIVE), deployment={"host_time_scale": scale})
        constant = ConstantAgent(tuned_knobs(real_task(H200_LIVE)))
        rewards = [
            np.mean([played.trajectory.terms["reward"].mean() for played in play(agent, task, REPORTED_SEEDS[-6:])])
            for agent in (policy_of("ppo", ENGINES["h200"]), constant)
        ]
        assert rewards[0] > rewards[1]


def test_who_wins_is_said_with_the_gain_on_the_same_requests(tmp_path: Path, capsys: Any) -> None:
    plan = ENGINES["h200"]
    facts = {"engine": "h200", "task": H200_LIVE, "task_version": 1, "num_blocks": 56_000, "block_tokens": 16}
    for policy in ("tuned", "ppo"):
        for seed in (1, 2):
            (played,) = play(policy_of(policy, plan), real_task(H200_LIVE), [seed])
            save(tmp_path, {**facts, "policy": policy, "seed": seed, "graph_max_tokens": 512}, played)
    assert main(["report", "--source", str(tmp_path), "--plot", str(tmp_path / "card.png")]) == 0
    shown = capsys.readouterr().out
    assert "Gain of PPO over it, seed by seed: 0.0" in shown and "| ppo | score |" in shown
    assert (tmp_path / "card.png").read_bytes().startswith(b"\x89PNG")


def test_a_shorter_version_is_played_with_the_constant_and_the_policy_of_the_whole_task() -> None:
    plan = ENGINES["h200"]
    for policy in POLICIES:
        (played,) = play(policy_of(policy, plan), task_of(plan, 12), [1])
        assert played.step_count == 12
    assert policy_of("tuned", plan).name == "tuned"


def test_the_host_of_the_day_is_fitted_to_the_episodes_that_are_not_reported(tmp_path: Path, capsys: Any) -> None:
    host = tmp_path / "day.json"
    assert main(["host", "--source", str(CARD), "--save", str(host)]) == 0
    usual, found = load_host(str(real_task(H200_LIVE).deployment.host)), load_host(str(host))
    assert (found.decode_attention, found.answer_ms) == (usual.decode_attention, usual.answer_ms)
    assert found.piecewise_graph != usual.piecewise_graph and 20.0 < found.no_graph.base_ms < 40.0
    record = load(CARD)[0]
    task = task_of(ENGINES["h200"], 8)
    beside = [fleet_of(task, record, path).host for path in (None, host)]
    assert beside[0] != beside[1]
    with pytest.raises(SystemExit, match="holds no recorded episode"):
        main(["host", "--source", str(tmp_path), "--save", str(host)])


def test_the_engine_is_compared_with_itself_on_the_same_requests(tmp_path: Path, capsys: Any) -> None:
    earlier = CARD.with_name("h200_card_30s")
    assert main(["again", "--source", str(earlier), str(CARD)]) == 0
    assert "| ppo | 301000 |" in capsys.readouterr().out
    assert main(["again", "--source", str(CARD), str(CARD)]) == 0
    assert "mean TTFT 0%, mean TPOT 0%" in capsys.readouterr().out
    records = load(CARD)
    others = [replace(r, facts={**r.facts, "seed": 301001 if r.key[1] == 301000 else 301000}) for r in records]
    with pytest.raises(ConfigError, match="was not played on the same requests"):
        pairs_of(records, others, 0.5)
    with pytest.raises(ConfigError, match="no policy and seed in common"):
        pairs_of(records, [replace(r, facts={**r.facts, "seed": 7}) for r in records], 0.5)


def test_an_episode_that_is_kept_is_not_played_again(recorded: Path, capsys: Any) -> None:
    assert is_kept(recorded, "vllm", 1) and not is_kept(recorded, "vllm", 3)
    # All of it is there, so no engine is started.
    asked = ["--engine", "cpu", "--policy", "vllm", "static", "heuristic", "--seeds", "1", "2"]
    assert main(["play", *asked, "--windows", "6", "--out", str(recorded)]) == 0
    assert "holds all 6 episodes" in capsys.readouterr().out


def test_a_policy_without_weights_is_refused_before_an_engine_is_started(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="tiny_server"):
        main(["play", "--engine", "cpu", "--policy", "tuned", "--seeds", "1", "--out", str(tmp_path)])


def test_the_cost_of_the_plug_in_is_found_although_iterations_grow() -> None:
    grown_ms = [10.0 + 0.1 * i for i in range(21)]
    blocks = [
        {"is_steered": i % 2 == 1, "iteration_ms": ms * (1.02 if i % 2 == 1 else 1.0)} for i, ms in enumerate(grown_ms)
    ]
    found = overhead_of(blocks, sequences=64, is_recording=False)
    assert found.added == pytest.approx(0.02) and found.low <= found.added <= found.high
    assert "it adds +2.00%" in as_text([found])


def test_an_empty_folder_is_refused_with_the_way_to_fill_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tools\.card_experiment play"):
        load(tmp_path)


def test_the_four_policies_are_planned_for_each_engine() -> None:
    assert POLICIES == ("vllm", "tuned", "heuristic", "ppo")
    for plan in ENGINES.values():
        assert set(plan.defaults) <= set(KNOB) and plan.task in REAL_TASKS


def test_both_are_compared_beside_every_cpu() -> None:
    plan = ENGINES["h200"]
    found = rewards_of(real_task(H200_LIVE), plan, REPORTED_SEEDS[:2])
    assert len(found) == 2 * len(SCALES) and all(len(rewards) == 2 for rewards in found.values())
