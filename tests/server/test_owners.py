"""Sessions belong to somebody: an id that cannot be guessed, a cookie, or an address that stands for one client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from llmserve_env.server.application import create_app
from llmserve_env.server.clients import Client, identify
from tests.server.conftest import settings

Visitor = Callable[..., TestClient]


@contextmanager
def visitors_of(app: FastAPI) -> Iterator[Visitor]:
    """Runs the app, and makes clients with their own address, program and cookies (none with `forgetful`)."""

    def visitor(address: str = "192.0.2.1", program: str = "a", forgetful: bool = False, **headers: str) -> TestClient:
        found = TestClient(app, headers={"user-agent": program, **headers}, client=(address, 50_000))
        found.portal = server.portal
        if forgetful:
            found.cookies.extract_cookies = lambda response: None  # type: ignore[method-assign]
        return found

    with TestClient(app) as server:
        yield visitor


@pytest.fixture
def visitor() -> Iterator[Visitor]:
    with visitors_of(create_app(settings())) as found:
        yield found


def reset(client: TestClient, **asked: Any) -> str:
    answer = client.post("/reset", json={"seed": 1, **asked})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["session_id"])


def step(client: TestClient, **named: Any) -> tuple[int, str]:
    answer = client.post("/step", json={"action": {}, **named})
    return answer.status_code, answer.json().get("session_id", answer.json().get("detail"))


def test_a_single_client_needs_no_id_with_or_without_cookies(visitor: Visitor) -> None:
    for client in (visitor("192.0.2.1"), visitor("192.0.2.2", forgetful=True)):
        reset(client)
        latest = reset(client)
        assert [step(client) for _ in range(3)] == [(200, latest)] * 3
        assert client.get("/state").json()["session_id"] == latest
        assert client.post("/grader", json={}).json()["steps"] == 3
        assert len(client.get("/log").json()["actions"]) == 3


def test_two_browsers_at_one_address_keep_their_own_sessions(visitor: Visitor) -> None:
    one, two = visitor(), visitor()
    mine, theirs = reset(one), reset(two)
    assert [step(one), step(two), step(one)] == [(200, mine), (200, theirs), (200, mine)]
    assert [client.get("/state").json()["step_count"] for client in (one, two)] == [2, 1]


def test_programs_at_one_address_without_cookies_get_an_error_and_not_a_foreign_session(visitor: Visitor) -> None:
    one, two = visitor(program="curl", forgetful=True), visitor(program="wget", forgetful=True)
    reset(one)
    mine = reset(two)
    status, detail = step(one)
    assert (status, "session_id" in detail) == (409, True)
    assert step(two) == (200, mine)


def test_behind_an_unknown_proxy_a_call_needs_an_id_or_the_cookie(visitor: Visitor) -> None:
    proxied = {"x-forwarded-for": "198.51.100.1"}
    forgetful, browser = visitor(forgetful=True, **proxied), visitor(**proxied)
    session = reset(forgetful)
    status, detail = step(forgetful)
    assert (status, "proxy" in detail) == (409, True)
    assert step(forgetful, session_id=session) == (200, session)
    mine = reset(browser)
    assert step(browser) == (200, mine)
    assert [forgetful.get(path).status_code for path in ("/state", "/log")] == [409, 409]


def test_behind_a_trusted_proxy_clients_are_told_apart_by_their_addresses() -> None:
    with visitors_of(create_app(settings(trusted_hops=1))) as visitor:
        one, two = (
            visitor("10.0.0.1", forgetful=True, **{"x-forwarded-for": f"6.6.6.6, 198.51.100.{n}"}) for n in (1, 2)
        )
        mine, theirs = reset(one), reset(two)
        assert [step(one), step(two), step(one)] == [(200, mine), (200, theirs), (200, mine)]


def test_a_chosen_name_is_not_shared_with_other_clients(visitor: Visitor) -> None:
    mine, other = visitor("192.0.2.1"), visitor("192.0.2.2")
    reset(mine, session_id="run")
    assert step(mine, session_id="run") == (200, "run")
    assert step(other, session_id="run")[0] == 404
    assert [other.get(path, params={"session_id": "run"}).status_code for path in ("/state", "/log")] == [404, 404]
    assert other.post("/grader", json={"session_id": "run"}).status_code == 404
    assert other.post("/play", json={"session_id": "run", "agent": "static"}).status_code == 404
    reset(other, session_id="run")
    step(other, session_id="run")
    assert [client.get("/state", params={"session_id": "run"}).json()["step_count"] for client in (mine, other)] == [
        1,
        1,
    ]


def test_a_secret_id_is_the_right_to_use_the_session_from_anywhere(visitor: Visitor) -> None:
    session = reset(visitor("192.0.2.1"))
    assert len(session) == 32
    assert step(visitor("192.0.2.2"), session_id=session) == (200, session)


@pytest.mark.parametrize("address", ["192.0.2.1", "192.0.2.2"])
def test_an_episode_over_a_websocket_overwrites_nobodys_session(visitor: Visitor, address: str) -> None:
    mine = visitor("192.0.2.1", forgetful=True)
    reset(mine, session_id="run")
    step(mine, session_id="run")
    with visitor(address).websocket_connect("/ws") as socket:
        for kind, data in (("reset", {"seed": 9, "episode_id": "run"}), ("step", {}), ("step", {}), ("reset", {})):
            socket.send_json({"type": kind, "data": data})
            assert socket.receive_json()["type"] == "observation"
    state = mine.get("/state", params={"session_id": "run"}).json()
    assert (state["step_count"], state["seed"]) == (1, 1)


def test_sessions_keep_their_owners_over_a_restart(tmp_path: Path) -> None:
    chosen = settings(store=f"sqlite:///{tmp_path / 'sessions.db'}")
    with visitors_of(create_app(chosen)) as visitor:
        browser, curl = visitor(), visitor(program="curl", forgetful=True)
        names = [reset(browser), reset(curl)]
        assert step(browser) == (200, names[0])
    with visitors_of(create_app(chosen)) as visitor:
        again = visitor()
        again.cookies = browser.cookies
        assert [step(again), step(visitor(program="curl", forgetful=True))] == [(200, name) for name in names]
        assert step(visitor("192.0.2.9"))[0] == 409


def scope(peer: str, **headers: str) -> dict[str, Any]:
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "client": (peer, 1), "headers": lines}


def test_a_forwarded_address_counts_only_as_often_as_there_are_trusted_proxies() -> None:
    forged = scope("10.0.0.1", x_forwarded_for="1.1.1.1, 2.2.2.2")
    assert [identify(forged, hops).address for hops in (0, 1, 2, 3)] == ["10.0.0.1", "2.2.2.2", "1.1.1.1", "10.0.0.1"]
    assert [identify(forged, hops).is_shared for hops in (0, 1, 2, 3)] == [True, False, False, True]
    # A front end such as uvicorn's command puts the header's text in the place of the address.
    assert identify(scope("6.6.6.6", x_forwarded_for="6.6.6.6"), 0).address == "unknown"


def test_an_address_is_short_whatever_a_client_says() -> None:
    long = identify(scope("10.0.0.1", x_forwarded_for="x" * 50_000), 1)
    assert long == Client("10.0.0.1", program=long.program)
    assert identify(scope("2001:db8::1:2:3:4")).address == identify(scope("2001:db8::9")).address == "2001:db8::/64"
    assert identify(scope("::ffff:192.0.2.1")).address == "192.0.2.1"


def test_forged_headers_do_not_pass_the_rate_limit() -> None:
    with visitors_of(create_app(settings(requests_per_s=0.001))) as visitor:
        codes = [visitor("192.0.2.1", **{"x-forwarded-for": f"10.1.1.{n}"}).get("/tasks").status_code for n in range(5)]
        assert codes == [200, 429, 429, 429, 429]
        assert visitor("192.0.2.2").get("/tasks").status_code == 200
