"""Limits and abuse: bodies, rates, request ids, and a hand-written list of hostile requests."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

import pytest
from fastapi.testclient import TestClient

from llmserve_env.server import middleware
from llmserve_env.server.application import create_app
from llmserve_env.server.limits import MAX_CLIENTS, RateLimit, Turns, retry_after
from llmserve_env.server.middleware import SMALL_BODY_BYTES
from llmserve_env.server.settings import MAX_LOG_ENTRIES
from tests.server.conftest import settings

DEEP = "[" * 30_000 + "]" * 30_000
HOSTILE = {
    "not json": b"{",
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "a number": b"7",
    "not utf-8": b'{"action": "\xff\xfe"}',
    "NaN": b'{"action": {"kv_budget_fraction": NaN}}',
    "infinity": b'{"action": {"kv_budget_fraction": 1e999}}',
    "negative infinity": b'{"action": {"batch_cap": -Infinity}}',
    "a huge integer": b'{"action": {"batch_cap": 1' + b"0" * 400 + b"}}",
    "an integer beyond printing": b'{"action": {"batch_cap": 1' + b"0" * 5_000 + b"}}",
    "deep json": f'{{"action": {DEEP}}}'.encode(),
    "deep objects": (b'{"action":' * 5_000) + b"1" + b"}" * 5_000,
    "a string for a number": b'{"action": {"batch_cap": "32"}}',
    "a boolean for a number": b'{"action": {"batch_cap": true}}',
    "an object for a number": b'{"action": {"batch_cap": {}}}',
    "a list for the action": b'{"action": [1, 2, 3]}',
    "unknown fields": b'{"action": {}, "admin": true}',
    "the same field twice": b'{"action": {"batch_cap": 3, "batch_size": 4}}',
    "sql in the id": b'{"session_id": "x\'; DROP TABLE sessions; --", "action": {}}',
    "unicode in the id": '{"session_id": "\U0001f680é中", "action": {}}'.encode(),
    "a zero byte in the id": b'{"session_id": "a\\u0000b", "action": {}}',
    "half a surrogate in the id": b'{"session_id": "\\ud800", "action": {}}',
    "half a surrogate in a field": b'{"action": {"\\ud800": 1}}',
    "a long id": b'{"session_id": "' + b"x" * 10_000 + b'", "action": {}}',
    "an empty id": b'{"session_id": "", "action": {}}',
    "a number as id": b'{"session_id": 7, "action": {}}',
    "a huge step index": b'{"step_index": 99999999999999999999, "action": {}}',
}


@pytest.mark.parametrize("path", ["/step", "/reset", "/grader", "/play", "/mcp", "/llmserve_env/tasks"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bodies_are_refused_without_harm(client: TestClient, path: str, name: str) -> None:
    client.post("/reset", json={"session_id": "victim", "seed": 1})
    answer = client.post(path, content=HOSTILE[name], headers={"content-type": "application/json"})
    assert answer.status_code < 500
    assert client.get("/state", params={"session_id": "victim"}).json()["step_count"] == 0


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/state", {"session_id": "a\x00b"}),
        ("/state", {"session_id": "' OR 1=1 --"}),
        ("/state", {"session_id": "x" * 5_000}),
        ("/log", {"session_id": "\U0001f680"}),
        ("/baseline", {"task_id": "../../etc/passwd.yaml"}),
        ("/baseline", {"seed": "-1"}),
        ("/baseline", {"seed": "9" * 40}),
        ("/agents", {"task_id": "/etc/task.yaml"}),
        ("/web/static/../app.py", {}),
        ("/web/static/%2e%2e/app.py", {}),
    ],
)
def test_hostile_queries_are_refused(client: TestClient, path: str, params: dict[str, str]) -> None:
    assert 400 <= client.get(path, params=params).status_code < 500


def test_sessions_may_have_any_printable_name(client: TestClient) -> None:
    for name in ("\U0001f680é中", "x'; DROP TABLE sessions; --", "%00", "../../x"):
        assert client.post("/reset", json={"session_id": name}).json()["session_id"] == name
        assert client.get("/state", params={"session_id": name}).json()["episode_id"] == name
    assert client.post("/reset", json={"session_id": "a\nb"}).status_code == 422


def test_a_body_beyond_the_limit_is_413() -> None:
    with TestClient(create_app(settings(max_body_bytes=10_000))) as client:
        assert client.post("/step", content=b"x" * 10_001).status_code == 413

        def pieces() -> Any:
            yield from (b"x" * 1_000 for _ in range(50))

        assert client.post("/step", content=pieces()).status_code == 413
        assert client.post("/reset", json={}).status_code == 200


def log_of(**lists: Any) -> dict[str, Any]:
    fields = {"task_id": "static_workload", "task_version": 1, "environment_version": "1", "seed": 1, "actions": []}
    return {"episode_log": {**fields, **lists}}


def test_only_a_log_may_be_large(client: TestClient) -> None:
    actions = [{"batch_cap": 96, "kv_budget_fraction": 0.5}] * 1_900
    log = json.dumps(log_of(actions=actions))
    assert len(log) > SMALL_BODY_BYTES
    assert client.post("/grader", content=log).status_code != 413
    for path in ("/step", "/reset", "/play", "/mcp", "/web/step", "/web/reset"):
        assert client.post(path, content=log).status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        {"task_id": 1, "episode_log": [{}] * (MAX_LOG_ENTRIES + 1)},
        log_of(actions=[{}] * (MAX_LOG_ENTRIES + 1)),
        log_of(rewards=["x"] * (MAX_LOG_ENTRIES + 1)),
        {"episode_log": dict.fromkeys(map(str, range(MAX_LOG_ENTRIES + 1)), 0)},
    ],
    ids=["answers", "actions", "rewards", "fields"],
)
def test_a_log_of_too_many_entries_is_refused_before_they_are_looked_at(
    client: TestClient, body: dict[str, Any]
) -> None:
    refused = client.post("/grader", json=body)
    assert (refused.status_code, len(refused.json()["detail"])) == (422, 1)
    assert f"{MAX_LOG_ENTRIES} entries at most" in refused.json()["detail"][0]["msg"]


def test_too_many_requests_are_429_with_a_time_to_wait() -> None:
    with TestClient(create_app(settings(requests_per_s=0.001, expensive_per_min=2))) as client:
        codes = [client.get("/tasks").status_code for _ in range(3)]
        assert codes == [200, 429, 429]
        refused = client.get("/tasks")
        assert int(refused.headers["retry-after"]) >= 1
        assert client.get("/health").status_code == 200
        assert [client.post("/grader", json={}).status_code for _ in range(2)] == [409, 429]


def test_what_is_beyond_a_limit_is_answered_late_and_probes_are_never_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "HELD_S", 0.2)
    with TestClient(create_app(settings(requests_per_s=0.001, plays_per_s=0.001))) as client:
        for path, status in (("/tasks", 429), ("/metrics", 429), ("/health", 200), ("/ready", 200)):
            client.get(path)
            began_s = time.monotonic()
            late = client.get(path)
            assert late.status_code == status
            assert time.monotonic() - began_s >= 0.2


def test_many_requests_of_one_client_let_others_come_between() -> None:
    order: list[str] = []

    async def scene() -> None:
        turns = Turns(at_once=3)

        async def ask(address: str) -> None:
            await turns.wait(address)
            order.append(address)

        greedy = [asyncio.create_task(ask("greedy")) for _ in range(8)]
        await asyncio.gather(*greedy, asyncio.create_task(ask("honest")))

    asyncio.run(scene())
    assert order == ["greedy"] * 3 + ["honest"] + ["greedy"] * 5


def test_a_bucket_refills_with_time_and_clients_do_not_share_it() -> None:
    now = [0.0]
    limit = RateLimit(per_s=2.0, burst=2.0, clock=lambda: now[0])
    assert [limit.wait_s("a") for _ in range(3)] == [0.0, 0.0, 0.5]
    assert limit.wait_s("b") == 0.0
    now[0] = 0.5
    assert limit.wait_s("a") == 0.0
    assert retry_after(0.2) == "1"


def test_only_so_many_clients_are_remembered() -> None:
    limit = RateLimit(per_s=1.0, burst=1.0, clock=lambda: 0.0)
    assert [limit.wait_s("first") for _ in range(2)] == [0.0, 1.0]
    for number in range(MAX_CLIENTS):
        limit.wait_s(f"client {number}")
    assert limit.wait_s("first") == 0.0


def test_request_ids_are_echoed_or_made(client: TestClient) -> None:
    assert client.get("/health", headers={"x-request-id": "abc"}).headers["x-request-id"] == "abc"
    assert len(client.get("/health").headers["x-request-id"]) == 16
    assert client.get("/health", headers={"x-request-id": "x" * 500}).headers["x-request-id"] != "x" * 500
    forged = {"x-request-id": "abc client=192.0.2.9"}
    assert " " not in client.get("/health", headers=forged).headers["x-request-id"]


def test_no_request_writes_a_line_of_its_own_into_the_log(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    client.get("/no%0asuch%0d%1b[2Jpage")
    assert any("such" in record.getMessage() for record in caplog.records)
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_browsers_of_other_origins_may_call(client: TestClient) -> None:
    answer = client.get("/health", headers={"origin": "https://elsewhere.example"})
    assert answer.headers["access-control-allow-origin"] == "*"
