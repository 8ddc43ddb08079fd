"""The step loop over any backend: knobs that cannot change, bills per token, and snapshots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmserve_env.backends.simulated import SimulatedBackend
from llmserve_env.engine.knobs import KNOBS, default_knobs, knobs_from_mapping
from llmserve_env.env.episode import Episode
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.tasks.catalog import load_task

TASK = load_task("adversarial_multitenant")


class MeteredBackend(SimulatedBackend):
    """The simulator, with two knobs it cannot change and a provider that charges for tokens."""

    fixed_knobs = ("batch_cap", "priority_routing")
    window_budget_usd: float | None = 0.02
    window_usd = 0.005


def stepped(batch: EpisodeBatch, steps: int, **action: Any) -> EpisodeBatch:
    for _ in range(steps):
        batch.step(np.tile(knobs_from_mapping(action), (batch.num_episodes, 1)))
    return batch


def everything(batch: EpisodeBatch) -> list[bytes]:
    return [records.tobytes() for records in (batch.control, batch.terms, batch.metrics, batch.window)]


def test_knobs_that_the_backend_cannot_change_are_held() -> None:
    episode = Episode(TASK, backend=MeteredBackend(TASK))
    episode.reset(1)
    episode.step(knobs_from_mapping({"batch_cap": 64, "kv_budget_fraction": 0.5, "priority_routing": True}))
    assert episode.held_knobs == ("batch_cap", "priority_routing")
    in_force = TASK.knobs_from_mapping({"kv_budget_fraction": 0.5})
    assert episode.batch.knobs[0].tolist() == in_force.tolist()


def test_dollars_charged_replace_the_price_of_gpu_time() -> None:
    free, metered = EpisodeBatch(SimulatedBackend(TASK)), EpisodeBatch(MeteredBackend(TASK))
    for batch in (free, metered):
        batch.reset(0, 3)
        stepped(batch, 2)
    terms, weight = metered.terms[0], TASK.reward.weights.cost
    assert (terms["cost_usd"], terms["cost"]) == (0.005, 0.25)
    assert metered.control[0]["cost_so_far_usd"] == 0.01
    difference = weight * (free.terms[0]["cost"] - terms["cost"])
    assert terms["reward"] == pytest.approx(free.terms[0]["reward"] + difference)


def test_a_charge_above_the_budget_costs_no_more_than_all_of_it() -> None:
    backend = MeteredBackend(TASK)
    backend.window_usd = 1.0
    batch = EpisodeBatch(backend)
    batch.reset(0, 3)
    assert stepped(batch, 1).terms[0]["cost"] == 1.0


def test_restored_episodes_continue_as_if_never_stopped() -> None:
    batch = EpisodeBatch.simulated(TASK, 2)
    for index in range(2):
        batch.reset(index, index)
    snapshot = stepped(batch, 5, batch_cap=64).snapshot()
    first = everything(stepped(batch, 4, batch_cap=96))
    batch.restore(snapshot)
    assert everything(stepped(batch, 4, batch_cap=96)) == first


def test_knobs_of_another_shape_are_refused() -> None:
    batch = EpisodeBatch.simulated(TASK, 2)
    with pytest.raises(ValueError, match=rf"expected knobs of shape \(2, {len(KNOBS)}\)"):
        batch.step(default_knobs()[None])
