"""Every agent: found by name, the same alone as in a batch, and honest about what it lacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from llmserve_env.agents.agent import view_of
from llmserve_env.agents.constant import ConstantAgent
from llmserve_env.agents.heuristic import HeuristicAgent
from llmserve_env.agents.ppo import PpoAgent
from llmserve_env.agents.registry import AGENT_NAMES, BENCHMARKED, CEILINGS, make_agent
from llmserve_env.engine.knobs import KNOBS, default_knobs
from llmserve_env.errors import ConfigError, LLMServeError, WeightsNotFoundError
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.catalog import SUITES, load_task
from tests.agents.playing import batch_of, begin, rewards, view


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="random, static, tuned"):
        make_agent("oracle")


@pytest.mark.parametrize("suite", SUITES)
def test_the_benchmark_names_agents_that_exist_and_its_ceilings(suite: str) -> None:
    assert set(BENCHMARKED[suite]) <= set(AGENT_NAMES)
    assert set(CEILINGS) <= set(BENCHMARKED[suite])


@pytest.mark.parametrize("name", ["random", "static", "heuristic"])
def test_an_episode_does_not_depend_on_its_neighbours(name: str) -> None:
    together = rewards(make_agent(name), "bursty_workload", [7, 8, 9], steps=40)
    alone = rewards(make_agent(name), "bursty_workload", [8], steps=40)
    assert np.array_equal(together[:, 1], alone[:, 0])


def test_a_view_is_a_copy() -> None:
    batch = batch_of("static_workload", [1])
    seen = view_of(batch, 0)
    seen.knobs[:], seen.metrics["queue_depth"] = 99.0, 99.0
    assert batch.knobs[0].tolist() == default_knobs().tolist()
    assert batch.metrics[0]["queue_depth"] == 0.0


def test_random_actions_stay_in_range_and_differ_between_episodes() -> None:
    batch = batch_of("adversarial_multitenant", [1, 2])
    agent = make_agent("random")
    begin(agent, batch, [1, 2])
    drawn = np.array([agent.act(view_of(batch, 0)) for _ in range(200)])
    for k, knob in enumerate(KNOBS):
        assert drawn[..., k].min() >= knob.low
        assert drawn[..., k].max() <= knob.high
        assert len(np.unique(drawn[..., k])) > 1
    assert not np.array_equal(drawn[:, 0], drawn[:, 1])


def test_static_keeps_the_defaults() -> None:
    agent = make_agent("static")
    assert agent.act(view())[0].tolist() == default_knobs().tolist()


class TestHeuristicRules:
    def act(self, **metrics: float) -> list[float]:
        agent = HeuristicAgent()
        agent.reset(load_task("adversarial_multitenant"), [stream(0, POLICY_STREAM)])
        usual = {"arrival_rate_rps": 30.0, "mean_prompt_tokens": 400.0}
        agent.act(view(step=1, metrics=usual))
        chosen: list[float] = agent.act(view(step=2, metrics=usual | metrics))[0].tolist()
        return chosen

    def test_a_queue_grows_the_batch_and_turns_priorities_on(self) -> None:
        calm, pressed = self.act(active_requests=200), self.act(active_requests=200, queue_depth=100)
        assert pressed[0] > calm[0]
        assert (calm[5], pressed[5]) == (0.0, 1.0)

    def test_kv_follows_occupancy(self) -> None:
        assert self.act(kv_cache_occupancy=0.2)[1] < self.act(kv_cache_occupancy=0.7)[1]

    def test_drafts_only_with_spare_compute_and_deeper_for_short_prompts(self) -> None:
        assert self.act(active_requests=10, mean_prompt_tokens=100)[2] == 2
        assert self.act(active_requests=10, mean_prompt_tokens=800)[2] == 1
        assert self.act(active_requests=10, mean_prompt_tokens=3000)[2] == 0
        assert self.act(active_requests=400, mean_prompt_tokens=100)[2] == 0

    def test_a_surge_of_requests_or_of_their_length_lowers_precision(self) -> None:
        assert [self.act(arrival_rate_rps=r)[3] for r in (20.0, 30.0, 50.0)] == [0, 0, 1]
        assert [self.act(mean_prompt_tokens=n)[3] for n in (300.0, 400.0, 3000.0)] == [0, 0, 1]

    def test_between_surge_and_calm_the_precision_stays(self) -> None:
        agent = HeuristicAgent()
        agent.reset(load_task("adversarial_multitenant"), [stream(0, POLICY_STREAM)])
        metrics = {"arrival_rate_rps": 30.0, "mean_prompt_tokens": 400.0}
        agent.act(view(step=1, metrics=metrics))
        between = view(step=2, metrics=metrics)
        for tier in (0.0, 1.0):
            between.knobs[0, 3] = tier
            assert agent.act(between)[0, 3] == tier


def test_the_heuristic_beats_the_defaults_where_everything_acts() -> None:
    paid = [
        rewards(make_agent(name), "adversarial_multitenant", [8], steps=80).sum() for name in ("heuristic", "static")
    ]
    assert paid[0] > paid[1]


def test_missing_weights_name_the_command_that_makes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMSERVE_WEIGHTS", str(tmp_path))
    with pytest.raises(WeightsNotFoundError, match=r"python train\.py --task static_workload"):
        PpoAgent().reset(load_task("static_workload"), [])


def test_an_agent_on_the_wire_cannot_act_on_features_it_does_not_have() -> None:
    agent = make_agent("ppo")
    with pytest.raises(LLMServeError, match="in process"):
        agent.act(view())


def test_a_constant_is_the_same_for_every_episode() -> None:
    knobs = np.array([64, 0.5, 0, 1, 0, 1.0])
    batch = batch_of("adversarial_multitenant", [1, 2, 3])
    assert ConstantAgent(knobs).act(view_of(batch, 0)).tolist() == [knobs.tolist()] * 3
