"""Which policy of a training for fleets ships."""

from __future__ import annotations

import numpy as np
import pytest

from llmserve_env.fleet.corrected import CorrectedRule
from llmserve_env.fleet.fluid.worlds import Worlds
from llmserve_env.fleet.learned import CorrectionNetwork
from llmserve_env.fleet.weeks import held_out_traffic
from llmserve_env.training.fleet_choice import CANDIDATES, Candidates, choose
from tests.fleet.small import small_task
from tests.fleet.worlds import plain_calibration, short_task, traffic_of

TASK = short_task("elastic_fleet")
RULE = {"weight_request_rps": 1.2, "batch_share": 0.0}


def correcting(replicas: float) -> CorrectionNetwork:
    """A policy that adds the same number of replicas to the rule's at all times."""
    size = CorrectedRule(TASK, RULE, 1)
    bias = np.zeros(size.num_actions)
    bias[0] = replicas / (0.3 * TASK.pools[0].usual_replicas)
    return CorrectionNetwork([(np.zeros((size.num_actions, size.num_features)), bias)], {"rule": RULE})


def test_the_engine_chooses_the_candidate_that_earns_most() -> None:
    wasteful, plain, starved = correcting(14.0), correcting(0.0), correcting(-9.0)
    found = choose(TASK, plain, [wasteful, correcting(0.5), starved], [traffic_of("elastic_fleet", 3)])
    assert found.network.layers[0][1][0] == pytest.approx(0.5 / (0.3 * 8))
    assert found.gain.mean <= found.gain.ci95[1]


def test_a_policy_that_corrects_nothing_gains_nothing() -> None:
    found = choose(TASK, correcting(0.0), [correcting(0.0)], [traffic_of("elastic_fleet", 3)])
    assert found.gain.mean == 0.0
    assert found.gain.ci95 == (0.0, 0.0)


def test_candidates_are_the_best_on_the_surrogate() -> None:
    candidates = Candidates(TASK, Worlds.of([traffic_of("elastic_fleet", 3)]), plain_calibration())
    for replicas in (20.0, 0.0, -9.0, *(0.1 * k for k in range(1, CANDIDATES + 1))):
        candidates.offer(correcting(replicas))
    kept = [network.layers[0][1][0] for network in candidates.networks]
    assert len(kept) == CANDIDATES
    assert correcting(20.0).layers[0][1][0] not in kept


def test_a_policy_is_chosen_on_days_of_week_1_that_training_does_not_see() -> None:
    day = small_task("elastic_plain", steps=2880)
    starts = [traffic.start_s for traffic in held_out_traffic(day, 5 * 86_400.0)]
    assert len(starts) == 2 * 2 * 2
    assert all(5 * 86_400.0 <= start < 7 * 86_400.0 for start in starts)
