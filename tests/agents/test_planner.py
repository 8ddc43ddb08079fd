"""Planning: branches are the episode itself, and the planner does not read the traffic to come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmserve_env.agents import planner
from llmserve_env.agents.agent import view_of
from llmserve_env.agents.branching import Branches
from llmserve_env.agents.forecast import Forecast
from llmserve_env.agents.plans import FIXED, Plans, candidate_plans
from llmserve_env.backends.real.tasks import H200_LIVE, real_task
from llmserve_env.engine.knobs import NAMES, default_knobs, named
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.errors import EpisodeStateError
from llmserve_env.tasks.catalog import load_task
from llmserve_env.workloads import schedule
from tests.agents.playing import batch_of, begin, rewards, view

KNOBS = load_task("adversarial_multitenant").knobs_from_mapping(
    {
        "batch_cap": 64,
        "kv_budget_fraction": 0.6,
        "speculation_depth": 1,
        "quantization_tier": "INT8",
        "prefill_decode_split": True,
        "priority_routing": True,
    }
)


@pytest.fixture(autouse=True)
def small_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner.PlannerAgent, "horizon_steps", 2)
    monkeypatch.setattr(planner.ClairvoyantAgent, "horizon_steps", 4)
    for kind in (planner.PlannerAgent, planner.ClairvoyantAgent):
        monkeypatch.setattr(kind, "margins", (0.1,))


def served(task: str, seed: int, steps: int) -> EpisodeBatch:
    batch = batch_of(task, [seed - 1, seed])
    for _ in range(steps):
        batch.step(np.tile(default_knobs(), (2, 1)))
    return batch


@pytest.mark.parametrize("task", ["static_workload", "bursty_workload", "adversarial_multitenant"])
def test_a_branch_goes_on_as_the_episode_does(task: str) -> None:
    batch = served(task, seed=5, steps=20)
    branches = Branches.simulated(batch.task, 3)
    branches.split_off(batch, 1, until_ps=26 * batch.task.window_ps)
    for _ in range(6):
        batch.step(np.tile(KNOBS, (2, 1)))
        branches.step(np.tile(KNOBS, (3, 1)))
        for e in range(3):
            assert branches.terms[e].tobytes() == batch.terms[1].tobytes()
            assert branches.metrics[e].tobytes() == batch.metrics[1].tobytes()


def test_branching_leaves_the_episode_alone() -> None:
    plain, branched = served("bursty_workload", 5, 10), served("bursty_workload", 5, 10)
    branches = Branches.simulated(branched.task, 2)
    branches.split_off(branched, 0, until_ps=15 * branched.task.window_ps)
    branches.mean_reward(Plans(np.tile(KNOBS, (5, 2, 1)), np.full((5, 2), 0.1)), used=0.2)
    for batch in (plain, branched):
        batch.step(np.tile(KNOBS, (2, 1)))
    assert plain.terms.tobytes() == branched.terms.tobytes()


def with_other_future(batch: EpisodeBatch) -> EpisodeBatch:
    """The same present, with every request still to come ten times as long."""
    state = batch.engine.state
    for e in range(batch.num_episodes):
        coming = slice(int(state.environment["next_arrival"][e]), None)
        state.requests["output_tokens"][e, coming] *= 10
    return batch


def plan(agent: Any, batch: EpisodeBatch, step: int) -> Any:
    begin(agent, batch, [4, 5])
    # What an agent that watched from the start would know of past arrivals.
    agent._arrived = [np.array([20.0, 20.0])] * (step - 1)
    return agent.act(view_of(batch, step))


def test_the_planner_does_not_see_the_traffic_to_come() -> None:
    chosen = plan(planner.PlannerAgent(), served("bursty_workload", 5, 10), 10)
    other = plan(planner.PlannerAgent(), with_other_future(served("bursty_workload", 5, 10)), 10)
    assert np.array_equal(chosen, other)


def test_an_episode_is_planned_the_same_alone_as_in_a_batch() -> None:
    together = rewards(planner.PlannerAgent(), "bursty_workload", [7, 8], steps=6)
    alone = rewards(planner.PlannerAgent(), "bursty_workload", [8], steps=6)
    assert np.array_equal(together[:, 1], alone[:, 0])


def test_the_clairvoyant_plays_against_what_really_comes() -> None:
    agent = planner.ClairvoyantAgent()
    paid = rewards(agent, "bursty_workload", [8], steps=15)
    from llmserve_env.agents.constant import DefaultKnobsAgent

    assert paid.mean() > rewards(DefaultKnobsAgent(), "bursty_workload", [8], steps=15).mean()


def test_a_pool_follows_its_use_unless_its_plan_says_otherwise() -> None:
    plans = Plans(np.tile(KNOBS, (1, 3, 1)), np.array([[0.1, 0.1, FIXED]]))
    budgets = named(plans.at(0, np.array([0.25, 0.95, 0.25])))["kv_budget_fraction"]
    assert budgets.tolist() == [0.35, 1.0, named(KNOBS)["kv_budget_fraction"]]


def test_plans_change_only_active_knobs_and_continue_alike() -> None:
    for name in ("static_workload", "bursty_workload", "adversarial_multitenant"):
        task = load_task(name)
        defaults = task.default_knobs
        plans = candidate_plans(task, defaults, defaults, (0.1, 0.2), num_steps=6)
        for knob in set(NAMES) - set(task.knobs.active):
            assert (named(plans.knobs)[knob] == named(defaults)[knob]).all()
        for knob in set(NAMES) - {"quantization_tier"}:
            later = named(plans.knobs[5])[knob]
            assert (later == later[0]).all()
        assert (plans.margins[5] == 0.1).all()


def test_planning_needs_the_simulator() -> None:
    with pytest.raises(EpisodeStateError, match="attach"):
        planner.PlannerAgent().act(view())


def test_the_forecast_finds_hypotheses_that_burst_when_the_traffic_does() -> None:
    task = load_task("bursty_workload")
    traffic = schedule(task.workload, 12345)
    now = int(np.flatnonzero(traffic.is_burst)[3])
    best = Forecast(task).best_hypotheses(traffic.total_rps[:now], 3)
    from llmserve_env.agents.forecast import FORECAST_SEEDS

    assert all(schedule(task.workload, FORECAST_SEEDS[i]).is_burst[now - 1] for i in best)


def test_plans_try_every_token_budget_of_a_task_that_offers_it() -> None:
    task = real_task(H200_LIVE)
    plans = candidate_plans(task, task.default_knobs, task.default_knobs, (0.1,), 4)
    budget = task.knob_table[NAMES.index("token_budget")]
    assert set(named(plans.knobs[0])["token_budget"]) == set(budget.levels)
