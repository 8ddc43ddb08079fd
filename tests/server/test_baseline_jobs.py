"""A language model's baseline: a job that the operator allows, with no more calls than it announced."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from fastapi.testclient import TestClient

from llmserve_env.agents import llm
from llmserve_env.agents.llm_credentials import HUGGING_FACE_URL, Credentials, credentials_from
from llmserve_env.server import baseline_jobs
from llmserve_env.server.application import create_app
from tests.server.conftest import settings

ASKED: dict[str, Any] = {"task_id": "static_workload", "use_openai": True, "decide_every": 50}
CALLS = 4
TIMEOUT_S = 120.0


class Model(ThreadingHTTPServer):
    """An OpenAI-compatible API on this machine that counts its calls and may be held up."""

    daemon_threads = True

    def __init__(self, status: int = 200, text: str = '{"batch_cap": 64}') -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.status, self.text, self.keys = status, text, list[str]()
        self.busy_for = 0
        """Calls that are refused with 429 before any is answered."""
        self.may_answer = threading.Event()
        self.may_answer.set()


class Answer(BaseHTTPRequestHandler):
    """One call."""

    def do_POST(self) -> None:
        model: Any = self.server
        self.rfile.read(int(self.headers["content-length"]))
        model.keys.append(self.headers["authorization"])
        model.may_answer.wait(TIMEOUT_S)
        status, model.busy_for = (429 if model.busy_for else model.status), max(model.busy_for - 1, 0)
        choice = {"index": 0, "message": {"role": "assistant", "content": model.text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
        refusal = {"error": {"message": f"bad key {self.headers['authorization']}"}}
        content = json.dumps(body if status == 200 else refusal).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@contextmanager
def model_api(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Iterator[Model]:
    with Model(**options) as model:
        threading.Thread(target=model.serve_forever, daemon=True).start()
        monkeypatch.setenv("API_BASE_URL", f"http://127.0.0.1:{model.server_address[1]}/v1")
        monkeypatch.setenv("API_KEY", "secret-key")
        yield model
        model.may_answer.set()
        model.shutdown()


@contextmanager
def serving(**changes: Any) -> Iterator[TestClient]:
    with TestClient(create_app(settings(**{"openai_baseline": True, **changes}))) as client:
        yield client


def ended(client: TestClient, job: dict[str, Any]) -> dict[str, Any]:
    """The job when it is over."""
    give_up_at_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < give_up_at_s:
        found: dict[str, Any] = client.get(job["status_url"]).json()
        if found["status"] != "running":
            return found
    raise AssertionError("the job does not end")


def test_without_the_operators_consent_no_call_is_made(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    with model_api(monkeypatch) as model:
        answer = client.get("/baseline", params=ASKED)
        assert (answer.status_code, "LLMSERVE_OPENAI_BASELINE" in answer.json()["detail"]) == (403, True)
        assert model.keys == []


def test_a_page_of_another_site_cannot_spend_money(monkeypatch: pytest.MonkeyPatch) -> None:
    with model_api(monkeypatch) as model, serving() as client:
        for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            assert client.get("/baseline", params=ASKED, headers=headers).status_code == 403
        assert model.keys == []


def test_without_a_key_the_answer_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_BASE_URL", "API_KEY", "OPENAI_API_KEY", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with serving() as client:
        answer = client.get("/baseline", params=ASKED)
        assert (answer.status_code, "OPENAI_API_KEY" in answer.json()["detail"]) == (503, True)


def test_a_job_makes_the_announced_calls_and_has_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    with model_api(monkeypatch) as model, serving() as client:
        begun = client.get("/baseline", params=ASKED)
        assert (begun.status_code, begun.headers["location"]) == (202, begun.json()["status_url"])
        assert begun.json()["calls_planned"] == CALLS
        job = ended(client, begun.json())
        assert (job["status"], job["calls_made"], job["steps_played"]) == ("done", CALLS, 200)
        assert 0.0 <= job["results"]["static_workload"]["llm"]["score"] <= 1.0
        assert (model.keys, job["usage"]["calls"]) == (["Bearer secret-key"] * CALLS, CALLS)


def test_one_job_runs_at_a_time_and_a_cancelled_one_makes_no_further_call(monkeypatch: pytest.MonkeyPatch) -> None:
    with model_api(monkeypatch) as model, serving() as client:
        model.may_answer.clear()
        begun = client.get("/baseline", params=ASKED).json()
        assert client.get("/baseline", params=ASKED).status_code == 503
        assert client.delete(begun["status_url"]).status_code == 200
        model.may_answer.set()
        job = ended(client, begun)
        assert job["status"] == "cancelled"
        assert len(model.keys) <= 1


def test_a_job_that_nobody_asks_about_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    with model_api(monkeypatch) as model, serving() as client:
        model.may_answer.clear()
        begun = client.get("/baseline", params=ASKED).json()
        monkeypatch.setattr(baseline_jobs, "LEASE_S", 0.0)
        client.app.state.service.baseline_jobs.look_after()  # type: ignore[attr-defined]
        model.may_answer.set()
        assert ended(client, begun)["status"] == "cancelled"
        assert len(model.keys) <= 1


def test_an_error_of_the_api_is_not_repeated_and_does_not_show_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with model_api(monkeypatch, status=401) as model, serving() as client:
        job = ended(client, client.get("/baseline", params=ASKED).json())
        assert (job["status"], len(model.keys)) == ("failed", 1)
        assert "secret-key" not in json.dumps(job)


def test_a_busy_api_is_asked_again_and_its_refusals_are_no_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm, "FIRST_PAUSE_S", 0.01)
    with model_api(monkeypatch) as model, serving(openai_calls_per_hour=CALLS) as client:
        model.busy_for = 3
        job = ended(client, client.get("/baseline", params=ASKED).json())
        assert (job["status"], job["calls_made"], job["usage"]["calls"]) == ("done", CALLS, CALLS)
        assert len(model.keys) == CALLS + 3


def test_an_api_that_stays_busy_fails_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm, "FIRST_PAUSE_S", 0.001)
    with model_api(monkeypatch, status=429) as model, serving() as client:
        job = ended(client, client.get("/baseline", params=ASKED).json())
        assert (job["status"], job["results"], "429" in job["error"]) == ("failed", {}, True)
        assert len(model.keys) == baseline_jobs.MAX_REPEATED_REFUSALS + 1


def test_a_job_that_waits_for_a_busy_api_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm, "FIRST_PAUSE_S", TIMEOUT_S)
    monkeypatch.setattr(llm, "LONGEST_PAUSE_S", TIMEOUT_S)
    with model_api(monkeypatch, status=429) as model, serving() as client:
        begun = client.get("/baseline", params=ASKED).json()
        client.delete(begun["status_url"])
        assert ended(client, begun)["status"] == "cancelled"
        assert len(model.keys) <= 1


def test_a_bug_in_a_job_is_in_the_log_with_its_traceback_and_without_the_key(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("refused with Bearer secret-key")

    monkeypatch.setattr(baseline_jobs, "_grade", broken)
    with model_api(monkeypatch), serving() as client:
        job = ended(client, client.get("/baseline", params=ASKED).json())
    assert (job["status"], job["error"]) == ("failed", "internal error; the server's log has the details")
    assert "in broken" in caplog.text and "RuntimeError: refused with Bearer ***" in caplog.text
    assert "secret-key" not in caplog.text + json.dumps(job)


def test_the_hours_calls_are_not_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    with model_api(monkeypatch) as model, serving(openai_calls_per_hour=CALLS + 1) as client:
        ended(client, client.get("/baseline", params=ASKED).json())
        answer = client.get("/baseline", params=ASKED)
        assert (answer.status_code, "1 are left" in answer.json()["detail"]) == (503, True)
        assert len(model.keys) == CALLS


def test_an_unknown_job_is_404(client: TestClient) -> None:
    assert client.get("/baseline/jobs/nope").status_code == 404


def test_a_key_goes_only_to_the_host_it_was_set_for() -> None:
    assert credentials_from({"HF_TOKEN": "hf"}) == Credentials("hf", HUGGING_FACE_URL)
    assert credentials_from({"OPENAI_API_KEY": "sk", "HF_TOKEN": "hf"}) == Credentials("sk", None)
    assert credentials_from({"API_KEY": "key"}) == Credentials(None, None)
    assert credentials_from({"API_BASE_URL": "http://x", "API_KEY": "key"}) == Credentials("key", "http://x")
