"""One replica of the reference against numbers worked out by hand from the specification.

Unless a test says otherwise an iteration takes 100 ps, 1 ps per prefill token and 10 ps per decode token.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from llmserve_env.engine.costs import Curve, DraftCosts, GpuCosts
from tests.reference.acceptance import SPECULATION, uniform
from tests.reference.costs import curve_ps, iteration_ps
from tests.reference.engine import ReferenceEngine
from tests.reference.plain import PlainDeployment, PlainKnobs, PlainRequests, Row, linear_costs, table
from tests.reference.request import DECODE, FIRST_ADMISSION, RESUMED, Item, Request, Work

COSTS = linear_costs(overhead_ps=100, per_decode_token_ps=10, per_prefill_token_ps=1)
ONE_REPLICA = PlainDeployment(costs=COSTS)
KNOBS = PlainKnobs()


class Recorder:
    """Items, scheduling time and preemptions of every iteration."""

    def __init__(self) -> None:
        self.items: list[list[Item]] = []
        self.scheduled_at_ps: list[int] = []
        self.free_after: list[int] = []

    def __call__(
        self, replica: int, at: int, start: int, end: int, items: list[Item], before: int, after: int, lost: list[int]
    ) -> None:
        self.items.append(items)
        self.scheduled_at_ps.append(at)
        self.free_after.append(after)


def serve(
    deployment: PlainDeployment, requests: PlainRequests, knobs: PlainKnobs = KNOBS, until_ps: int = 10**9
) -> tuple[ReferenceEngine, Recorder]:
    recorder = Recorder()
    engine = ReferenceEngine(deployment, requests, seed=1, on_iteration=recorder)
    engine.advance(knobs, until_ps)
    return engine, recorder


def token_times(engine: ReferenceEngine) -> list[list[int]]:
    return [request.token_times_ps for request in engine.requests]


def test_a_lone_request_prefills_then_decodes() -> None:
    engine, _ = serve(ONE_REPLICA, table(Row(7, 5, 3)))
    # 7 + 105, then twice 110.
    assert token_times(engine) == [[112, 222, 332]]
    assert engine.requests[0].finished_at_ps == 332
    assert engine.requests[0].status == "FINISHED"
    assert (engine.counters.iterations, engine.counters.busy_ps) == (3, 325)
    assert (engine.counters.prefill_tokens, engine.counters.output_tokens) == (5, 3)


def test_prefill_takes_what_decodes_leave_of_the_token_budget() -> None:
    deployment = dataclasses.replace(ONE_REPLICA, token_budget=8)
    engine, recorder = serve(deployment, table(Row(0, 4, 3), Row(1, 10, 1)))
    # 4 prefill; 1 decode + 7 prefill; 1 decode + 3 prefill: 104, 117, 113.
    assert token_times(engine) == [[104, 221, 334], [334]]
    assert [[item.n_tokens for item in items] for items in recorder.items] == [[4], [1, 7], [1, 3]]


def test_long_prefill_threshold_holds_only_while_there_is_company() -> None:
    deployment = dataclasses.replace(ONE_REPLICA, long_prefill_threshold=3)
    engine, recorder = serve(deployment, table(Row(0, 10, 1), Row(0, 2, 1)))
    # 3 + 2 tokens, then the first request is alone and its 7 last tokens go at once.
    assert [[item.n_tokens for item in items] for items in recorder.items] == [[3, 2], [7]]
    assert token_times(engine) == [[212], [105]]


def test_batch_cap_makes_requests_wait_and_never_evicts() -> None:
    requests = table(Row(0, 4, 2), Row(0, 4, 2))
    engine, _ = serve(ONE_REPLICA, requests, PlainKnobs(batch_cap=1))
    assert token_times(engine) == [[104, 214], [318, 428]]
    engine, _ = serve(ONE_REPLICA, requests, PlainKnobs(batch_cap=2), until_ps=50)
    engine.advance(PlainKnobs(batch_cap=1), 10**9)
    # Both prefill in 108 and both decode in 120, whatever the cap says meanwhile.
    assert token_times(engine) == [[108, 228], [108, 228]]


def test_a_request_without_blocks_is_preempted_and_computed_again() -> None:
    deployment = dataclasses.replace(ONE_REPLICA, num_blocks_override=4)
    engine, recorder = serve(deployment, table(Row(0, 7, 3), Row(0, 8, 2)))
    # At 115 request 1 needs a third block of four and there is none: it is the last, so it goes.
    # At 225 three blocks for its nine tokens are not free; at 335 request 0 is done and it recomputes nine tokens.
    assert token_times(engine) == [[115, 225, 335], [115, 444]]
    assert engine.requests[1].preemptions == engine.counters.preemptions == 1
    assert recorder.items[3] == [Item(1, 9, 0, RESUMED, 0)]
    assert recorder.free_after == [0, 2, 1, 1]


def test_a_preempted_request_finds_what_is_left_of_its_own_blocks() -> None:
    deployment = dataclasses.replace(ONE_REPLICA, num_blocks_override=4, prefix_caching=True)
    engine, recorder = serve(deployment, table(Row(0, 7, 3), Row(0, 8, 2)))
    # Request 0's third block took the tail of request 1's two; the head is still cached: 4 tokens of 9.
    assert recorder.items[3] == [Item(1, 5, 4, RESUMED, 0)]
    assert token_times(engine) == [[115, 225, 335], [115, 440]]


def test_priority_takes_blocks_from_the_lowest_class_and_refunds_its_tokens() -> None:
    deployment = dataclasses.replace(ONE_REPLICA, num_blocks_override=4)
    requests = table(Row(0, 7, 3, priority=1), Row(0, 8, 2, priority=0))
    engine, recorder = serve(deployment, requests, PlainKnobs(priority_routing=True))
    # Request 1 runs first in the queue's order; at 115 it needs a block and request 0 gives up two.
    assert recorder.items[1] == [Item(1, 1, 8, DECODE, 0)]
    assert token_times(engine) == [[115, 333, 443], [115, 225]]


def test_a_victim_scheduled_earlier_in_the_step_leaves_the_batch() -> None:
    deployment = dataclasses.replace(ONE_REPLICA, num_blocks_override=4)
    requests = table(Row(0, 7, 3, priority=1), Row(10, 8, 2, priority=0))
    engine, recorder = serve(deployment, requests, PlainKnobs(priority_routing=True))
    # Request 0 prefills alone to 107; its decode and request 1's prefill end at 225 (118).
    # At 225 request 0 needs a third block itself and is the lowest class.
    assert recorder.items[1] == [Item(0, 1, 7, DECODE, 0), Item(1, 8, 0, FIRST_ADMISSION, 0)]
    assert recorder.items[2] == [Item(1, 1, 8, DECODE, 0)]
    # 225 + 110, then nine tokens of request 0: 109.
    assert token_times(engine) == [[107, 225, 444], [225, 335]]


def test_priority_orders_the_queue() -> None:
    requests = table(Row(0, 4, 1, priority=1), Row(1, 4, 1, priority=1), Row(2, 4, 1, priority=0))
    engine, _ = serve(ONE_REPLICA, requests, PlainKnobs(batch_cap=1, priority_routing=True))
    assert token_times(engine) == [[104], [312], [208]]


@pytest.mark.parametrize(("reserve", "expected"), [(True, [4]), (False, [4, 4])])
def test_the_full_prompt_gate_looks_beyond_the_first_chunk(reserve: bool, expected: list[int]) -> None:
    deployment = dataclasses.replace(ONE_REPLICA, num_blocks_override=3, token_budget=8, reserve_full_prompt=reserve)
    # Twelve tokens take three blocks and two are free; their first chunk of four takes one.
    _, recorder = serve(deployment, table(Row(0, 4, 2), Row(0, 12, 1)), until_ps=1)
    assert [item.n_tokens for item in recorder.items[0]] == expected


@pytest.mark.parametrize(("prompt_tokens", "admitted"), [(8, 2), (9, 1)])
def test_the_watermark_stays_free_once_something_runs(prompt_tokens: int, admitted: int) -> None:
    deployment = dataclasses.replace(ONE_REPLICA, num_blocks_override=7, watermark_fraction=0.5)
    # int(0.5 × 8) = 4 of the 6 blocks that request 0 leaves.
    _, recorder = serve(deployment, table(Row(0, 4, 2), Row(0, prompt_tokens, 2)), until_ps=1)
    assert len(recorder.items[0]) == admitted


def test_a_request_that_never_fits_is_rejected_and_the_next_one_served() -> None:
    deployment = dataclasses.replace(ONE_REPLICA, num_blocks_override=4)
    engine, _ = serve(deployment, table(Row(5, 17, 1), Row(5, 4, 1)))
    assert (engine.requests[0].status, engine.requests[0].finished_at_ps) == ("REJECTED", 5)
    assert token_times(engine) == [[], [109]]


def test_a_client_without_a_first_token_leaves_at_its_deadline() -> None:
    engine, _ = serve(ONE_REPLICA, table(Row(0, 4, 5), Row(1, 4, 1, patience_ps=300)), PlainKnobs(batch_cap=1))
    assert (engine.requests[1].status, engine.requests[1].finished_at_ps) == ("ABANDONED", 301)
    assert engine.counters.abandoned == 1


def test_a_full_waiting_room_rejects_on_arrival() -> None:
    deployment = dataclasses.replace(ONE_REPLICA, waiting_room=(1,) * 8)
    requests = table(Row(0, 4, 1), Row(10, 4, 1), Row(20, 4, 1), Row(20, 4, 1, priority=1))
    engine, _ = serve(deployment, requests, PlainKnobs(batch_cap=1))
    assert [request.status for request in engine.requests] == ["FINISHED", "FINISHED", "REJECTED", "FINISHED"]
    assert engine.requests[2].finished_at_ps == 20


def test_accepted_drafts_become_tokens_and_rejected_ones_roll_back() -> None:
    accepted = [np.array([0, 1, 1, 0, 0, 0], dtype=np.uint8)]
    engine = ReferenceEngine(ONE_REPLICA, table(Row(0, 4, 6)), seed=1, recorded_acceptance=accepted)
    engine.advance(PlainKnobs(speculation_depth=2), 10**9)
    # Three decode tokens an iteration (130 ps): both drafts kept, then none, then none.
    assert token_times(engine) == [[104, 234, 234, 234, 364, 494]]
    assert (engine.counters.drafted_tokens, engine.counters.accepted_tokens) == (6, 2)


def test_the_output_limit_truncates_accepted_drafts() -> None:
    engine, _ = serve(ONE_REPLICA, table(Row(0, 4, 6, acceptance=1.0)), PlainKnobs(speculation_depth=2))
    assert token_times(engine) == [[104, 234, 234, 234, 364, 364]]


def test_a_draft_model_reserves_slots_for_its_lookahead() -> None:
    deployment = dataclasses.replace(ONE_REPLICA, draft_lookahead=True, num_blocks_override=10)
    _, recorder = serve(deployment, table(Row(0, 4, 2)), PlainKnobs(speculation_depth=2), until_ps=1)
    assert recorder.free_after == [8]


def test_a_shrunken_pool_preempts_the_last() -> None:
    deployment = dataclasses.replace(ONE_REPLICA, num_blocks_override=4)
    engine, _ = serve(deployment, table(Row(0, 5, 3), Row(0, 5, 2)), until_ps=50)
    engine.advance(PlainKnobs(kv_budget_fraction=0.5), 10**9)
    # Prefill to 110; then two blocks are left, for request 0 until 330; then request 1 recomputes six tokens.
    assert token_times(engine) == [[110, 220, 330], [110, 436]]


def test_memory_beyond_the_card_restarts_the_replica() -> None:
    costs = dataclasses.replace(COSTS, activation_bytes_per_token=1)
    deployment = dataclasses.replace(
        ONE_REPLICA, costs=costs, memory_limit_bytes=100, num_blocks_override=None, restart_overhead_ps=1000
    )
    engine, _ = serve(deployment, table(Row(0, 4, 1)), until_ps=500)
    assert engine.counters.ooms == 1
    engine.advance(PlainKnobs(kv_budget_fraction=0.5), 10**9)
    # 25 blocks of 4 bytes fill the card, so 4 bytes of activations exceed it; 12 blocks leave room.
    assert token_times(engine) == [[1104]]
    assert (engine.counters.ooms, engine.counters.preemptions) == (1, 0)


def test_async_scheduling_runs_one_iteration_ahead() -> None:
    deployment = dataclasses.replace(ONE_REPLICA, async_scheduling=True)
    engine, recorder = serve(deployment, table(Row(0, 4, 3), Row(50, 4, 1)))
    # At 0 the prefill and the first decode are scheduled; request 1 is first seen at 104 and starts at 214.
    assert recorder.scheduled_at_ps == [0, 0, 104]
    assert recorder.items[2] == [Item(0, 1, 5, DECODE, 0), Item(1, 4, 0, FIRST_ADMISSION, 0)]
    assert token_times(engine) == [[104, 214, 328], [328]]


def test_async_preemption_keeps_the_token_in_flight() -> None:
    deployment = dataclasses.replace(ONE_REPLICA, async_scheduling=True, num_blocks_override=4)
    engine, recorder = serve(deployment, table(Row(0, 7, 3), Row(0, 8, 2)))
    # At 0 request 1 has no third block for its second iteration; its first token still arrives at 115.
    assert recorder.items[1] == [Item(0, 1, 7, DECODE, 0)]
    # At 115 request 0's ninth slot takes a block, at 225 nothing is to be done, at 335 request 1 resumes.
    assert token_times(engine) == [[115, 225, 335], [115, 444]]
    assert engine.requests[1].preemptions == 1


def test_requests_of_one_prefix_share_its_blocks() -> None:
    deployment = dataclasses.replace(ONE_REPLICA, prefix_caching=True, num_blocks_override=10)
    requests = table(Row(0, 10, 3, prefix_id=0, prefix_tokens=8), Row(1, 10, 1, prefix_id=0, prefix_tokens=8))
    _, recorder = serve(deployment, requests)
    assert recorder.items[1] == [Item(0, 1, 10, DECODE, 0), Item(1, 2, 8, FIRST_ADMISSION, 0)]
    # Three blocks of request 0 and one more for request 1.
    assert recorder.free_after[:2] == [7, 6]


def test_a_session_turn_finds_the_turn_before_it() -> None:
    deployment = dataclasses.replace(ONE_REPLICA, prefix_caching=True)
    requests = table(Row(0, 4, 5, session_id=3), Row(10_000, 12, 1, session_id=3))
    _, recorder = serve(deployment, requests)
    # Eight tokens of the first turn were computed: four of its prompt, four of its five outputs.
    assert recorder.items[-1] == [Item(1, 4, 8, FIRST_ADMISSION, 0)]


def test_curves_are_linear_between_and_beyond_knots_with_floored_slopes() -> None:
    curve = Curve((2, 4, 10), (20, 25, 100))
    # Slopes 2 (of 2.5) and 12 (of 12.5).
    assert [curve_ps(curve, x) for x in (0, 1, 2, 3, 4, 9, 10, 12)] == [0, 18, 20, 22, 25, 85, 100, 124]


def test_iteration_time_adds_every_term() -> None:
    base = linear_costs(1000, 7, 10, 1, 3, 2)
    draft = DraftCosts(overhead_ps=50, gemm=Curve((0, 1), (0, 4)), per_context_token_ps=1, weight_bytes=0)
    tier = dataclasses.replace(base.tiers[0], gemm=Curve((0, 1), (0, 5)))
    costs: GpuCosts = dataclasses.replace(base, tiers=dict.fromkeys(range(3), tier), draft=draft)
    request = Request(0, 0, 9, 9, 0, 0, 0.0, -1, 0, -1)
    works = [Work(request, 3, 10, DECODE, 2), Work(request, 4, 6, FIRST_ADMISSION, 0)]
    # Decode context 13; prefill pairs 4·6 + 10 = 34; the draft runs twice over one sequence, then over 4 tokens.
    without_draft = 1000 + 7 * 2 + 10 * 3 + 1 * 4 + 5 * 7 + 3 * 13 + 2 * 34
    assert iteration_ps(costs, 0, 2, works) == without_draft + 2 * (50 + 4 * 1 + 13) + 4 * 4


def test_uniform_is_a_function_of_its_four_arguments() -> None:
    draws = [uniform(seed, SPECULATION, request, p) for seed in (0, 1) for request in (0, 1) for p in (0, 1)]
    assert len(set(draws)) == 8
    assert all(0.0 <= draw < 1.0 for draw in draws)
    many = [uniform(5, SPECULATION, request, p) for request in range(100) for p in range(100)]
    assert abs(float(np.mean(many)) - 0.5) < 0.01
