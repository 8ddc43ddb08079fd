"""OpenEnv's WebSocket and its typed client, against a server with real sockets."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import websockets
from fastapi.testclient import TestClient
from openenv.core.env_server.http_server import create_fastapi_app

from llmserve_env.client import LLMServeEnv, LlmserveEnv, LLMServeWSEnv
from llmserve_env.engine.deployment import MAX_RUNNING
from llmserve_env.env.episode import Episode
from llmserve_env.errors import EpisodeStateError, InvalidActionError, ServerError, UnknownTaskError
from llmserve_env.models import ServeAction, ServeObservation, ServeState
from llmserve_env.server import llmserve_environment
from llmserve_env.server.application import create_app
from llmserve_env.server.errors import MAX_PROBLEMS, StoreBusyError
from llmserve_env.server.llmserve_environment import LLMServeEnvironment
from tests.server.conftest import settings
from tests.server.running import RunningServer

ACTION = {"batch_cap": 96, "speculation_depth": 1}


def say(socket: Any, kind: str, **data: Any) -> dict[str, Any]:
    socket.send_json({"type": kind, "data": data} if kind != "state" else {"type": kind})
    found: dict[str, Any] = socket.receive_json()
    return found


def test_a_connection_is_a_session(client: TestClient) -> None:
    with client.websocket_connect("/ws") as one, client.websocket_connect("/ws") as two:
        for socket, name in ((one, "first"), (two, "second")):
            say(socket, "reset", task_id="bursty_workload", seed=4, episode_id=name)
        rewards = [say(one, "step", **ACTION)["data"]["reward"] for _ in range(3)]
        assert [say(two, "step", **ACTION)["data"]["reward"] for _ in range(3)] == rewards
        state = say(one, "state")["data"]
        assert (state["episode_id"], state["step_count"], state["task_id"]) == ("first", 3, "bursty_workload")


@pytest.fixture
def openenv() -> Iterator[TestClient]:
    """OpenEnv's own server over the same environment."""
    app = create_fastapi_app(LLMServeEnvironment, ServeAction, ServeObservation, 4, state_cls=ServeState)
    with TestClient(app) as found:
        yield found


def frames(client: TestClient, messages: list[str]) -> list[Any]:
    """The answers to these messages on one connection."""
    found = []
    with client.websocket_connect("/ws") as socket:
        for message in messages:
            socket.send_text(message)
            found.append(socket.receive_json())
    return found


@pytest.mark.parametrize("task_id", ["static_workload", "adversarial_multitenant"])
def test_an_episode_is_answered_with_the_frames_of_openenv(
    client: TestClient, openenv: TestClient, task_id: str
) -> None:
    messages = []
    for seed, steps in ((4, 201), (5, 3)):
        messages.append({"type": "reset", "data": {"task_id": task_id, "seed": seed, "episode_id": f"e{seed}"}})
        messages += [{"type": "step", "data": {"batch_cap": 16 + step}} for step in range(steps)]
        messages.append({"type": "state"})
    texts = [json.dumps(message) for message in messages]
    found = frames(client, texts)
    assert found == frames(openenv, texts)
    assert (found[200]["data"]["done"], found[201]["type"]) == (True, "error")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"type": "step"}',
        '{"type": "step", "data": 3}',
        '{"type": "step", "data": {"batch_cap": 0}}',
        '{"type": "step", "data": {"kv_budget_fraction": NaN}}',
        '{"type": "step", "data": {}, "more": 1}',
        '{"type": "reset", "data": {"seed": -1}}',
        '{"type": "reset", "data": {"task_id": "nope"}}',
        '{"type": "reset", "data": {"index": 99}}',
        '{"type": "reset", "data": {"colour": "red"}}',
        '{"type": "x"}',
        '{"data": {}}',
        '{"type": "mcp", "data": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}',
        '{"type": "mcp", "data": {}}',
    ],
)
def test_a_message_is_refused_with_the_frame_of_openenv(client: TestClient, openenv: TestClient, text: str) -> None:
    messages = ['{"type": "reset", "data": {"seed": 1}}', text, '{"type": "step", "data": {}}']
    found = frames(client, messages)[1:]
    assert found == frames(openenv, messages)[1:]
    assert found[0]["type"] in ("error", "mcp")


@pytest.mark.parametrize(
    "text", ["[]", "7", "", "[" * 100_000, '{"type": "\\ud800"}', '{"type": "step", "data": {"\\ud800": 1}}']
)
def test_a_message_that_is_no_object_is_refused_and_the_session_goes_on(client: TestClient, text: str) -> None:
    found = frames(client, [text, '{"type": "step", "data": {}}'])
    assert (found[0]["type"], found[0]["data"]["code"]) == ("error", "INVALID_JSON")
    assert found[1]["type"] == "observation"


def test_a_binary_message_is_refused(client: TestClient) -> None:
    with client.websocket_connect("/ws") as socket:
        socket.send_bytes(b"{}")
        assert socket.receive_json()["data"]["code"] == "INVALID_JSON"


def test_a_client_may_close_its_session(client: TestClient) -> None:
    with client.websocket_connect("/ws") as socket:
        socket.send_json({"type": "close"})
        assert socket.receive()["type"] == "websocket.close"


def test_connections_beyond_the_limit_are_refused() -> None:
    with TestClient(create_app(settings(max_websockets=1))) as client, client.websocket_connect("/ws") as first:
        with client.websocket_connect("/ws") as second:
            refused = second.receive_json()["data"]
        assert (refused["code"], refused["active_sessions"], refused["max_sessions"]) == ("CAPACITY_REACHED", 1, 1)
        assert say(first, "step")["type"] == "observation"


def test_an_idle_connection_is_closed() -> None:
    quick = settings(websocket_idle_s=0.01)
    with TestClient(create_app(quick)) as client, client.websocket_connect("/ws") as socket:
        closed = socket.receive()
        assert (closed["type"], closed["code"]) == ("websocket.close", 1001)


def test_a_connection_can_join_a_session_of_mcp(client: TestClient) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create", "params": {}}
    session_id = client.post("/mcp", json=request).json()["result"]["session_id"]
    with client.websocket_connect(f"/ws?session_id={session_id}") as socket:
        assert say(socket, "reset", seed=1)["data"]["observation"]["step_index"] == 0
        assert client.get("/health").json()["active_sessions"] == 1
    with client.websocket_connect("/ws?session_id=elsewhere") as socket:
        assert socket.receive_json()["data"]["code"] == "SESSION_ERROR"


def test_bad_messages_are_answered_and_the_session_goes_on(client: TestClient) -> None:
    with client.websocket_connect("/ws") as socket:
        for asked in (
            {"task_id": "nope"},
            {"seed": -1},
            {"colour": "red"},
            {"config": {"x": 1}},
            {"seed": "x"},
            {"episode_id": "\n"},
        ):
            assert say(socket, "reset", **asked)["type"] == "error"
        say(socket, "reset", seed=1)
        refused = say(socket, "step", batch_cap=0)["data"]
        assert f"from 1 to {MAX_RUNNING}" in str(refused["errors"])
        assert say(socket, "step")["data"]["observation"]["step_index"] == 1
        for text in ('{"type": "step", "data": {"batch_cap": ' + "9" * 5_000 + "}}", "[" * 30_000):
            socket.send_text(text)
            assert socket.receive_json()["data"]["code"] == "INVALID_JSON"
        assert len(say(socket, "step", **{f"knob {n}": 1 for n in range(500)})["data"]["errors"]) == MAX_PROBLEMS
        assert say(socket, "step")["data"]["observation"]["step_index"] == 2


def test_a_step_before_any_reset_starts_the_first_task(client: TestClient) -> None:
    with client.websocket_connect("/ws") as socket:
        assert say(socket, "step")["data"]["observation"]["task_id"] == "static_workload"


def test_an_episode_played_over_a_socket_can_be_graded_afterwards(client: TestClient) -> None:
    with client.websocket_connect("/ws") as socket:
        say(socket, "reset", seed=1, episode_id="played")
        for _ in range(5):
            say(socket, "step", **ACTION)
        say(socket, "reset", seed=2)
        assert client.post("/grader", json={"session_id": "played"}).json()["steps"] == 5


def test_both_clients_tell_the_same_story(running: RunningServer) -> None:
    with LLMServeEnv.from_url(running.url) as http, LLMServeWSEnv(running.url).sync() as ws:
        observation = http.reset(task_id="static_workload", seed=42)
        result = ws.reset(task_id="static_workload", seed=42, episode_id="ws")
        assert result.observation == observation
        while not observation.done:
            observation, reward, done, info = http.step(ACTION)
            result = ws.step(ServeAction(batch_cap=96, speculation_depth=1))
            assert (result.reward, result.done, result.observation) == (reward, done, observation)
            assert set(info) >= {"reward_terms", "phase", "held_knobs", "timestep", "metrics", "workload"}
        assert http.grade().score == ws.state().score
        assert http.log().seed == 42
        assert next(task["id"] for task in http.tasks()) == "static_workload"


def messages_of_an_episode() -> list[str]:
    """Plain steps between messages that OpenEnv answers: good and bad ones, the last step and one too many."""
    steps = [{"type": "step", "data": {"batch_cap": 16 + step}} for step in range(201)]
    steps[7]["data"] = {"batch_cap": 0}
    first = {"type": "reset", "data": {"task_id": "bursty_workload", "seed": 4, "episode_id": "ahead"}}
    return [json.dumps(message) for message in (first, *steps, {"type": "state"}, first, *steps[:5])]


def test_a_client_that_runs_ahead_gets_the_answers_of_one_that_waits(running: RunningServer) -> None:
    address, said = f"ws://127.0.0.1:{running.port}/ws", messages_of_an_episode()

    async def wait() -> list[str | bytes]:
        async with websockets.connect(address) as socket:
            answers = []
            for message in said:
                await socket.send(message)
                answers.append(await socket.recv())
            return answers

    async def run_ahead() -> list[str | bytes]:
        async with websockets.connect(address) as socket:
            for message in said:
                await socket.send(message)
            return [await socket.recv() for _ in said]

    answers = asyncio.run(run_ahead())
    assert answers == asyncio.run(wait())
    assert [json.loads(answer)["type"] for answer in answers].count("error") == 1


def test_the_asynchronous_client_steps_too(running: RunningServer) -> None:
    async def play() -> int:
        async with LlmserveEnv(running.url) as env:
            await env.reset(seed=3)
            await env.step(ServeAction(batch_cap=64))
            return int((await env.state()).step_count)

    assert asyncio.run(play()) == 1


def test_errors_come_back_as_exceptions(running: RunningServer) -> None:
    with LLMServeEnv.from_url(running.url) as env:
        with pytest.raises(EpisodeStateError, match="reset"):
            env.step({})
        with pytest.raises(UnknownTaskError, match="known: static_workload"):
            env.reset(task_id="nope")
        env.reset(seed=1)
        with pytest.raises(InvalidActionError, match=f"batch_cap must be a whole number from 1 to {MAX_RUNNING}"):
            env.step({"batch_cap": 0})
        with pytest.raises(ServerError, match="seed"):
            env.reset(seed=-1)
        with pytest.raises(EpisodeStateError, match="no session"):
            env.attach("elsewhere")
    with LLMServeEnv.from_url("http://127.0.0.1:1") as nowhere, pytest.raises(ServerError, match="no answer"):
        nowhere.reset()


def test_a_client_can_go_on_with_a_session(running: RunningServer) -> None:
    with LLMServeEnv.from_url(running.url) as env, LLMServeEnv.from_url(running.url) as other:
        env.reset(seed=1)
        env.step(ACTION)
        assert env.session_id is not None
        assert other.attach(env.session_id).step_count == 1
        assert other.step(ACTION)[0].step_index == 2


def test_a_space_has_its_address() -> None:
    with LLMServeEnv.from_hub("Some-Org/LLM_Serve.Env") as env:
        assert str(env._http.base_url) == "https://some-org-llm-serve-env.hf.space"
    with pytest.raises(ValueError, match="owner/name"):
        LLMServeEnv.from_hub("nobody")


def test_a_reset_waits_in_a_thread_for_a_store_that_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the store's own tidying makes it for a moment; the episode that ends is stored all the same."""
    kept: list[tuple[str, int]] = []
    refused: list[str] = []
    monkeypatch.setattr(llmserve_environment, "MAX_QUICK_RESET_S", math.inf)

    def keep(episode_id: str, is_chosen_id: bool, episode: Episode, overrides: dict[str, float] | None) -> None:
        if threading.current_thread() is threading.main_thread():
            refused.append(episode_id)
            raise StoreBusyError("another program holds the session store's lock; try again later")
        kept.append((episode_id, episode.step_count))

    async def play() -> None:
        environment = LLMServeEnvironment(keep)
        for episode_id in ("first", "second", "third"):
            await environment.reset_async(seed=1, episode_id=episode_id, task_id="static_workload")
            await environment.step_async(ServeAction(batch_cap=64))

    asyncio.run(play())
    assert kept == [("first", 1), ("second", 1)]
    assert refused == ["first", "second"]
