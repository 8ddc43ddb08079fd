"""Episodes within a budget of bytes: packed ones go on exactly as if they had stayed."""

from __future__ import annotations

import itertools
import platform
import subprocess
import sys
from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest
from fastapi.testclient import TestClient

from llmserve_env.env.episode import Episode
from llmserve_env.env.observation import observe, state_of
from llmserve_env.server.application import create_app
from llmserve_env.server.episode_memory import HOT_S, EpisodeMemory, HeldEpisode, Packed, Recipe
from llmserve_env.server.memory_watch import HIGH_SHARE, MIN_EPISODE_BYTES, MemoryWatch
from llmserve_env.tasks.catalog import BENCHMARK, load_task
from tests.server.conftest import settings

KNOBS = load_task("static_workload").knobs_from_mapping({"batch_cap": 96})


def started(task_id: str, seed: int, steps: int) -> Episode:
    episode = Episode(task_id)
    episode.reset(seed)
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        episode.step(varied(episode, rng))
    return episode


def varied(episode: Episode, rng: np.random.Generator) -> np.ndarray:
    knobs = episode.task.default_knobs
    for knob in episode.task.action_knobs:
        knobs[knob.column] = rng.choice(knob.levels)
    return knobs


@pytest.mark.parametrize("task_id", [*BENCHMARK, "mooncake_agent"])
@pytest.mark.parametrize("form", [Packed, Recipe], ids=["packed", "as actions"])
def test_an_episode_brought_back_goes_on_bit_by_bit(task_id: str, form: type[Packed] | type[Recipe]) -> None:
    stayed = started(task_id, seed=3, steps=12)
    stored = form.of(stayed)
    again = Episode(task_id)
    back = stored.unpack(again) if isinstance(stored, Packed) else stored.follow(again)
    assert (observe(back), state_of(back)) == (observe(stayed), state_of(stayed))
    rngs = np.random.default_rng(1), np.random.default_rng(1)
    for _ in range(6):
        stayed.step(varied(stayed, rngs[0]))
        back.step(varied(back, rngs[1]))
        assert observe(back) == observe(stayed)
    assert back.log() == stayed.log()


def test_an_episode_whose_earlier_seed_drew_more_requests_is_brought_back() -> None:
    stayed = started("static_workload", seed=3, steps=4)
    stayed.batch.engine.make_room(2 * stayed.batch.engine.max_requests)
    back = Packed.of(stayed).unpack(Episode("static_workload"))
    for episode in (stayed, back):
        episode.step(KNOBS)
    assert (observe(back), back.log()) == (observe(stayed), stayed.log())


def test_the_arrays_of_an_episode_are_not_much_larger_than_its_requests_need() -> None:
    for task_id in BENCHMARK:
        engine = started(task_id, seed=1, steps=1).batch.engine
        assert engine.max_requests < 1.3 * int(engine.state.environment[0]["num_requests"])


def held(memory: EpisodeMemory, seed: int, task_id: str = "bursty_workload") -> HeldEpisode:
    return memory.hold(started(task_id, seed, 5), partial(Episode, task_id))


def test_the_memory_stays_within_its_budget_and_packs_what_was_not_used_for_longest() -> None:
    size = started("bursty_workload", 1, 1).num_bytes
    memory = EpisodeMemory(budget_bytes=4 * size, clock=itertools.count(step=2 * HOT_S).__next__)
    episodes = [held(memory, seed) for seed in range(3)]
    assert [one.is_at_hand for one in episodes] == [True, True, True]
    with episodes[0].use():
        pass
    episodes.append(held(memory, 3))
    assert [one.is_at_hand for one in episodes] == [True, False, True, True]
    assert memory.num_bytes <= memory.budget_bytes
    with episodes[1].use() as episode:
        assert episode.step_count == 5
    assert [one.is_at_hand for one in episodes] == [True, True, False, True]


def test_a_packed_episode_is_brought_back_without_replaying_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    size = started("bursty_workload", 1, 1).num_bytes
    memory = EpisodeMemory(budget_bytes=4 * size, clock=itertools.count(step=2 * HOT_S).__next__)
    episodes = [held(memory, seed) for seed in range(4)]
    assert not episodes[0].is_at_hand
    replayed: list[Episode] = []
    monkeypatch.setattr(Episode, "step", lambda episode, _knobs: replayed.append(episode))
    with episodes[0].use() as episode:
        assert (episode.step_count, replayed) == (5, [])


def test_of_episodes_that_are_stepped_in_turn_most_stay_at_hand_although_not_all_can() -> None:
    size = started("static_workload", 1, 1).num_bytes
    memory = EpisodeMemory(budget_bytes=10 * size, clock=lambda: 0.0)
    episodes = [held(memory, seed, "static_workload") for seed in range(12)]
    found = 0
    for _ in range(20):
        for one in episodes:
            found += one.is_at_hand
            with one.use():
                pass
    # With the oldest first, none would ever be found.
    assert found > 20 * len(episodes) / 3


def test_when_packed_episodes_need_too_much_the_oldest_are_kept_as_actions() -> None:
    size = started("static_workload", 1, 1).num_bytes
    memory = EpisodeMemory(budget_bytes=size // 2)
    episodes = [held(memory, seed, "static_workload") for seed in range(24)]
    assert 0 < memory.num_packed < len(episodes) - 1
    assert memory.num_bytes <= 2 * size
    for seed, one in enumerate(episodes):
        with one.use() as episode:
            assert state_of(episode) == state_of(started("static_workload", seed, 5))


def test_an_episode_in_use_is_not_packed() -> None:
    size = started("static_workload", 1, 1).num_bytes
    memory = EpisodeMemory(budget_bytes=size)
    first = held(memory, 1, "static_workload")
    with first.use() as episode:
        held(memory, 2, "static_workload")
        assert first.episode is episode


def test_what_is_forgotten_takes_no_memory() -> None:
    memory = EpisodeMemory(budget_bytes=1 << 30)
    episodes = [held(memory, seed) for seed in range(3)]
    for one in episodes:
        memory.forget(one)
    assert memory.num_bytes == 0


def test_many_sessions_and_sockets_share_the_budget_and_nobody_notices() -> None:
    with TestClient(create_app(settings())) as client, ExitStack() as stack:
        memory = client.app.state.service.memory  # type: ignore[attr-defined]
        client.post("/reset", json={})
        memory.budget_bytes = 4 * started("static_workload", 1, 1).num_bytes
        sessions = [client.post("/reset", json={"seed": seed}).json()["session_id"] for seed in range(8)]
        sockets = [stack.enter_context(client.websocket_connect("/ws")) for _ in range(8)]
        for seed, socket in enumerate(sockets):
            socket.send_json({"type": "reset", "data": {"seed": seed}})
            socket.receive_json()
        for _ in range(3):
            for session, socket in zip(sessions, sockets, strict=True):
                answer = client.post("/step", json={"session_id": session, "action": {"batch_cap": 96}}).json()
                socket.send_json({"type": "step", "data": {"batch_cap": 96}})
                assert socket.receive_json()["data"]["observation"] == answer["observation"]
            assert memory.num_bytes <= memory.budget_bytes
        for socket in sockets:
            socket.send_json({"type": "state"})
            assert socket.receive_json()["data"]["step_count"] == 3


KEPT_AMONG_FREED = """
import sys
import numpy as np
from llmserve_env.server.process import map_large_blocks, resident_bytes
if sys.argv[1] == "mapped":
    map_large_blocks()
np.ones(2_000_000)
large, kept = [], []
for _ in range(300):
    large.append(np.ones(125_000))
    kept.append(bytearray(6_000))
occupied = resident_bytes()
large.clear()
print((occupied - resident_bytes()) / 300e6)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other habits")
def test_memory_of_episodes_goes_back_to_the_system_although_small_blocks_lie_between_them() -> None:
    freed = {
        how: float(subprocess.check_output([sys.executable, "-c", KEPT_AMONG_FREED, how])) for how in ("mapped", "not")
    }
    assert freed["mapped"] > 0.9
    assert freed["not"] < 0.5, "glibc does by itself what is done here"


class Process:
    """A process that occupies what its episodes take, and something else beside them."""

    def __init__(self, memory: EpisodeMemory, other_bytes: int) -> None:
        self._memory, self.other_bytes, self.times_given_back = memory, other_bytes, 0

    def resident(self) -> int:
        return self.other_bytes + self._memory.num_bytes

    def give_back(self) -> None:
        self.times_given_back += 1


def test_episodes_give_way_when_the_process_nears_its_limit_and_come_back_afterwards() -> None:
    limit_bytes = 400_000_000
    memory = EpisodeMemory(limit_bytes)
    process = Process(memory, other_bytes=100_000_000)
    watch = MemoryWatch(memory, limit_bytes, process.resident, process.give_back)
    full_bytes = watch.begin()
    assert full_bytes == int(HIGH_SHARE * limit_bytes) - 100_000_000
    episodes = [
        held(memory, seed) for seed in range(int(0.7 * full_bytes / started("bursty_workload", 1, 1).num_bytes))
    ]
    watch.look()
    assert (memory.budget_bytes, process.times_given_back) == (full_bytes, 0)
    process.other_bytes = 300_000_000
    watch.look()
    assert process.resident() <= HIGH_SHARE * limit_bytes
    assert process.times_given_back > 0 < memory.num_packed
    process.other_bytes = 100_000_000
    for _ in range(20):
        watch.look()
    assert memory.budget_bytes == full_bytes
    for seed, one in enumerate(episodes[:3]):
        with one.use() as episode:
            assert state_of(episode) == state_of(started("bursty_workload", seed, 5))


def test_a_small_rest_is_left_to_the_episodes_whatever_else_takes_the_memory() -> None:
    memory = EpisodeMemory(400_000_000)
    process = Process(memory, other_bytes=900_000_000)
    watch = MemoryWatch(memory, 400_000_000, process.resident, process.give_back)
    watch.begin()
    watch.look()
    assert memory.budget_bytes == MIN_EPISODE_BYTES
    with held(memory, 1).use() as episode:
        assert episode.step_count == 5
