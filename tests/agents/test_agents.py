"""Every agent: found by name, the same alone as in a batch, and honest about what it lacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from llmserve_env.agents.agent import view_of
from llmserve_env.agents.constant import ConstantAgent, vllm_default_knobs
from llmserve_env.agents.heuristic import HeuristicAgent
from llmserve_env.agents.ppo import PpoAgent
from llmserve_env.agents.registry import AGENT_NAMES, BENCHMARKED, CEILINGS, make_agent
from llmserve_env.engine.knobs import NAMES, named
from llmserve_env.errors import ConfigError, LLMServeError, WeightsNotFoundError
from llmserve_env.profiles.store import load_profile
from llmserve_env.profiles.vllm_defaults import VllmDefaults, vllm_defaults
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.catalog import SUITES, load_task
from llmserve_env.tasks.variants import on_fleet
from tests.agents.playing import batch_of, begin, rewards, view


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="random, default_knobs, vllm_defaults, tuned"):
        make_agent("oracle")


@pytest.mark.parametrize("suite", SUITES)
def test_the_benchmark_names_agents_that_exist_and_its_ceilings(suite: str) -> None:
    assert set(BENCHMARKED[suite]) <= set(AGENT_NAMES)
    assert set(CEILINGS) <= set(BENCHMARKED[suite])


@pytest.mark.parametrize("name", sorted({*AGENT_NAMES} - {"planner", "clairvoyant", "llm"}))
def test_an_episode_does_not_depend_on_its_neighbours(name: str) -> None:
    together = rewards(make_agent(name), "bursty_workload", [7, 8, 9], steps=40)
    alone = rewards(make_agent(name), "bursty_workload", [8], steps=40)
    assert np.array_equal(together[:, 1], alone[:, 0])


def test_a_view_is_a_copy() -> None:
    batch = batch_of("static_workload", [1])
    seen = view_of(batch, 0)
    seen.knobs[:], seen.metrics["queue_depth"] = 99.0, 99.0
    assert batch.knobs[0].tolist() == batch.task.default_knobs.tolist()
    assert batch.metrics[0]["queue_depth"] == 0.0


def test_random_actions_stay_in_range_and_differ_between_episodes() -> None:
    batch = batch_of("adversarial_multitenant", [1, 2])
    agent = make_agent("random")
    begin(agent, batch, [1, 2])
    drawn = np.array([agent.act(view_of(batch, 0)) for _ in range(200)])
    for knob in batch.task.action_knobs:
        values = named(drawn)[knob.name]
        assert values.min() >= knob.low
        assert values.max() <= knob.high
        assert len(np.unique(values)) > 1
    assert not np.array_equal(drawn[:, 0], drawn[:, 1])


def test_default_knobs_keeps_the_defaults() -> None:
    agent = make_agent("default_knobs")
    seen = view()
    agent.reset(seen.task, [stream(0, POLICY_STREAM)])
    assert agent.act(seen)[0].tolist() == seen.task.default_knobs.tolist()


def test_the_former_name_of_the_defaults_is_still_accepted() -> None:
    assert make_agent("static").name == "default_knobs"


@pytest.mark.parametrize(
    ("profile", "seqs", "tokens"),
    [
        ("a100-40gb.llama-3-8b", 256, 2_048),
        ("a100-80gb.llama-3-8b", 256, 2_048),
        ("h100-80gb.llama-3-8b", 1_024, 8_192),
        ("h200-141gb.llama-3-8b", 1_024, 8_192),
    ],
)
def test_vllm_defaults_follow_the_card_as_in_vllm(profile: str, seqs: int, tokens: int) -> None:
    assert vllm_defaults(load_profile(profile).gpu) == VllmDefaults(seqs, tokens)
    knobs = named(vllm_default_knobs(on_fleet(load_task("static_workload"), 1, profile)))
    assert knobs["batch_cap"] == min(seqs, 512), "the knob goes up to 512"
    assert knobs["token_budget"] == 2_048, "no knob exceeds what the task's engine was started with"


class TestHeuristicRules:
    def act(self, **metrics: float) -> dict[str, float]:
        agent = HeuristicAgent()
        agent.reset(load_task("adversarial_multitenant"), [stream(0, POLICY_STREAM)])
        usual = {"arrival_rate_rps": 30.0, "mean_prompt_tokens": 400.0}
        agent.act(view(step=1, metrics=usual))
        return dict(zip(NAMES, agent.act(view(step=2, metrics=usual | metrics))[0].tolist(), strict=True))

    def test_a_queue_grows_the_batch_and_switches_priorities_on(self) -> None:
        calm, pressed = self.act(active_requests=200), self.act(active_requests=200, queue_depth=100)
        assert pressed["batch_cap"] > calm["batch_cap"]
        assert (calm["priority_routing"], pressed["priority_routing"]) == (0.0, 1.0)

    def test_kv_follows_occupancy(self) -> None:
        roomy, tight = (self.act(kv_cache_occupancy=share)["kv_budget_fraction"] for share in (0.2, 0.7))
        assert roomy < tight

    def test_drafts_only_with_spare_compute_and_deeper_for_short_prompts(self) -> None:
        for active, prompt, depth in ((10, 100, 2), (10, 800, 1), (10, 3000, 0), (400, 100, 0)):
            assert self.act(active_requests=active, mean_prompt_tokens=prompt)["speculation_depth"] == depth

    def test_a_surge_of_requests_or_of_their_length_lowers_precision(self) -> None:
        assert [self.act(arrival_rate_rps=r)["quantization_tier"] for r in (20.0, 30.0, 50.0)] == [0, 0, 1]
        assert [self.act(mean_prompt_tokens=n)["quantization_tier"] for n in (300.0, 400.0, 3000.0)] == [0, 0, 1]

    def test_between_surge_and_calm_the_precision_stays(self) -> None:
        agent = HeuristicAgent()
        agent.reset(load_task("adversarial_multitenant"), [stream(0, POLICY_STREAM)])
        metrics = {"arrival_rate_rps": 30.0, "mean_prompt_tokens": 400.0}
        agent.act(view(step=1, metrics=metrics))
        between = view(step=2, metrics=metrics)
        for tier in (0.0, 1.0):
            named(between.knobs)["quantization_tier"] = tier
            assert named(agent.act(between))["quantization_tier"] == tier


def test_the_heuristic_beats_the_defaults_where_everything_acts() -> None:
    names = ("heuristic", "default_knobs")
    paid = [rewards(make_agent(name), "adversarial_multitenant", [8], steps=80).sum() for name in names]
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
    batch = batch_of("adversarial_multitenant", [1, 2, 3])
    knobs = batch.task.knobs_from_mapping({"batch_cap": 64, "quantization_tier": "INT8", "priority_routing": True})
    assert ConstantAgent(knobs).act(view_of(batch, 0)).tolist() == [knobs.tolist()] * 3
