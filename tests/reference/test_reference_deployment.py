"""Router, reloads and the split of the reference against numbers worked out by hand.

An iteration takes 100 ps, 1 ps per prefill token and 10 ps per decode token; weights load in 500 ps.
"""

from __future__ import annotations

import dataclasses

import pytest

from tests.reference.engine import ReferenceEngine
from tests.reference.plain import PlainDeployment, PlainKnobs, Row, linear_costs, table

LINEAR = linear_costs(overhead_ps=100, per_decode_token_ps=10, per_prefill_token_ps=1)
TIER = dataclasses.replace(LINEAR.tiers[0], weight_bytes=500)
COSTS = dataclasses.replace(LINEAR, tiers=dict.fromkeys(range(3), TIER))
ONE_REPLICA = PlainDeployment(costs=COSTS)
TWO_REPLICAS = PlainDeployment(costs=COSTS, num_replicas=2)
WITH_PREFILL_REPLICA = PlainDeployment(costs=COSTS, num_prefill_replicas=1, bring_up_ps=50)
SPLIT = PlainKnobs(prefill_decode_split=True)


def token_times(engine: ReferenceEngine) -> list[list[int]]:
    return [request.token_times_ps for request in engine.requests]


def places(engine: ReferenceEngine) -> list[list[int]]:
    return [replica.running_ids + replica.waiting_ids for replica in engine.replicas]


def test_the_router_takes_the_least_loaded_replica_and_the_lowest_index() -> None:
    engine = ReferenceEngine(TWO_REPLICAS, table(Row(0, 4, 9), Row(0, 4, 9), Row(0, 4, 9), Row(5, 4, 9)), seed=1)
    engine.advance(PlainKnobs(), 10)
    assert places(engine) == [[0, 2], [1, 3]]


def test_another_tier_reloads_a_lone_replica_and_loses_its_iteration() -> None:
    engine = ReferenceEngine(ONE_REPLICA, table(Row(0, 4, 3)), seed=1)
    engine.advance(PlainKnobs(), 150)
    engine.advance(PlainKnobs(quantization_tier=1), 10**9)
    # The decode from 104 is lost at 150; back at 650, five known tokens are computed again.
    assert token_times(engine) == [[104, 755, 865]]
    assert engine.requests[0].preemptions == 1
    assert engine.replicas[0].tier == 1


def test_replicas_reload_one_after_the_other_and_hand_their_requests_over() -> None:
    engine = ReferenceEngine(TWO_REPLICAS, table(Row(0, 4, 20)), seed=1)
    engine.advance(PlainKnobs(), 150)
    tier_1 = PlainKnobs(quantization_tier=1)
    engine.advance(tier_1, 649)
    assert places(engine) == [[], [0]]
    assert [replica.tier for replica in engine.replicas] == [1, 0]
    engine.advance(tier_1, 651)
    assert places(engine) == [[0], []]
    assert [replica.tier for replica in engine.replicas] == [1, 1]
    # On replica 1 from 150: 105, then 110 each until 585; what began then is lost at 650.
    assert token_times(engine) == [[104, 255, 365, 475, 585]]
    engine.advance(tier_1, 10**9)
    # Nine known tokens again from 650: 109.
    assert token_times(engine)[0][5] == 759


def test_a_target_that_changes_back_ends_with_the_reload_under_way() -> None:
    engine = ReferenceEngine(TWO_REPLICAS, table(), seed=1)
    engine.advance(PlainKnobs(quantization_tier=1), 100)
    engine.advance(PlainKnobs(quantization_tier=0), 600)
    # Replica 0 finishes loading tier 1 at 500 and starts on tier 0 at once.
    assert (engine.replicas[0].tier, engine.replicas[0].available_at_ps) == (0, 1000)
    assert (engine.replicas[1].tier, engine.replicas[1].available_at_ps) == (0, 0)


def test_a_prefill_replica_hands_its_requests_to_a_base_replica() -> None:
    engine = ReferenceEngine(WITH_PREFILL_REPLICA, table(Row(60, 4, 3)), seed=1)
    engine.advance(SPLIT, 166)
    # Prefill from 60 to 164; four tokens of one byte take 4 ps.
    assert engine.requests[0].status == "TRANSFERRING"
    assert places(engine) == [[], []]
    engine.advance(SPLIT, 10**9)
    assert token_times(engine) == [[164, 278, 388]]
    assert engine.counters.prefill_tokens == 4


def test_waiting_requests_move_to_prefill_replicas_when_they_are_ready() -> None:
    engine = ReferenceEngine(WITH_PREFILL_REPLICA, table(Row(10, 4, 2), Row(20, 4, 1)), seed=1)
    engine.advance(SPLIT, 10**9)
    # Request 0 began on the base replica at 10; request 1 waits there until 50.
    assert token_times(engine) == [[114, 224], [154]]


def test_the_split_switched_off_brings_its_requests_back() -> None:
    engine = ReferenceEngine(WITH_PREFILL_REPLICA, table(Row(60, 4, 2), Row(70, 6, 1)), seed=1)
    engine.advance(SPLIT, 100)
    assert places(engine) == [[], [0, 1]]
    engine.advance(PlainKnobs(), 10**9)
    # Both prefill on the base replica from 100: ten tokens.
    assert token_times(engine) == [[210, 320], [210]]
    assert [request.preemptions for request in engine.requests] == [1, 0]


def test_a_bring_up_can_be_called_off() -> None:
    engine = ReferenceEngine(WITH_PREFILL_REPLICA, table(Row(60, 4, 1)), seed=1)
    engine.advance(SPLIT, 40)
    engine.advance(PlainKnobs(), 10**9)
    assert engine.split_is_up is False
    assert token_times(engine) == [[164]]


def test_windows_do_not_change_the_result() -> None:
    rows = [Row(37 * i, 3 + i % 5, 1 + i % 7) for i in range(20)]
    whole = ReferenceEngine(TWO_REPLICAS, table(*rows), seed=1)
    whole.advance(PlainKnobs(), 10**6)
    cut = ReferenceEngine(TWO_REPLICAS, table(*rows), seed=1)
    for until_ps in range(13, 10**5, 13):
        cut.advance(PlainKnobs(), until_ps)
    assert token_times(cut) == token_times(whole)


def test_inputs_that_can_never_be_served_are_refused() -> None:
    with pytest.raises(ValueError, match="max_model_len allows 4096"):
        ReferenceEngine(ONE_REPLICA, table(Row(0, 4000, 97)), seed=1)
    with pytest.raises(ValueError, match="without chunked prefill"):
        ReferenceEngine(dataclasses.replace(ONE_REPLICA, chunked_prefill=False), table(), seed=1)
