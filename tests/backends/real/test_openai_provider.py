"""Real mode over OpenAI's protocol: the official client against a real HTTP server on loopback that misbehaves."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmserve_env.agents.agent import view_of
from llmserve_env.backends.real.backend import LiveBackend
from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.engine.knobs import knobs_from_mapping
from llmserve_env.env.episode import Episode
from llmserve_env.env.observation import state_of
from llmserve_env.errors import (
    ConfigError,
    EpisodeStateError,
    InvalidLogError,
    MissingCredentialError,
    ProviderError,
)
from llmserve_env.graders import grade
from llmserve_env.graders.components import components
from llmserve_env.models import ServeObservation
from tests.backends.real import streaming_server as scripts
from tests.backends.real.playing import PLENTY, counted, failed, key, play, real_episode, short_task, some
from tests.backends.real.streaming_server import Exchange, Script, streaming_server

__all__ = ["key"]
pytestmark = pytest.mark.usefixtures("key")


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Every load has ended with its episode."""
    yield
    assert [t.name for t in threading.enumerate() if t.name == "llmserve-load"] == []


def live(settings: RealSettings) -> Episode:
    """An episode that has not been reset."""
    task = short_task()
    return Episode(task, backend=LiveBackend(task, settings))


def test_a_whole_episode_is_served_measured_and_paid() -> None:
    with streaming_server() as server:
        episode = real_episode(server)
        seen = play(episode, some("finished"))
        assert counted(seen, "finished") <= counted(seen, "arrived")
        assert counted(seen, "output_tokens") >= 3 * counted(seen, "finished")
        for one in seen:
            ServeObservation.model_validate(one)
            assert one["metadata"]["mode"] == "real"
            assert all(np.isfinite(value) for value in one.values() if isinstance(value, float))
        assert seen[-1]["p50_ttft_ms"] > 0 and seen[-1]["throughput_tps"] > 0
        spent = seen[-1]["metadata"]["real"]["spent"]
        assert spent["usd"] == pytest.approx((spent["prompt_tokens"] + 2 * spent["completion_tokens"]) / 1e6)
        assert seen[-1]["cost_so_far"] <= spent["usd"]
        assert state_of(episode)["step_count"] == len(seen)
        assert set(components(episode.played())) >= {"throughput", "slo"}
        assert view_of(episode.batch, len(seen)).features is not None


def test_an_episode_ends_with_its_task() -> None:
    with streaming_server() as server:
        episode = real_episode(server, short_task(steps=4))
        seen = play(episode)
    assert episode.step_count == 4 and seen[-1]["done"] and state_of(episode)["done"]


def test_requests_ask_for_what_the_table_says() -> None:
    with streaming_server() as server:
        play(real_episode(server, max_completion_tokens=4), some("finished"))
    asked = server.asked[0]
    assert asked["stream"] is True and asked["stream_options"] == {"include_usage": True}
    assert all(one["max_completion_tokens"] <= 4 for one in server.asked)
    assert {header["authorization"] for header in server.headers} == {"Bearer secret"}
    words = [len(one["messages"][0]["content"].split()) for one in server.asked]
    assert min(words) >= 2 and max(words) <= 12


def test_what_the_api_cannot_do_is_said_not_pretended() -> None:
    with streaming_server() as server:
        seen = play(
            real_episode(server, short_task(steps=2)),
            kv_budget_fraction=0.5,
            speculation_depth=3,
            priority_routing=True,
        )
    metadata = seen[0]["metadata"]
    assert set(metadata["held_knobs"]) == {"kv_budget_fraction", "speculation_depth"}
    assert metadata["knobs"]["kv_budget_fraction"] == 1.0 and metadata["knobs"]["priority_routing"] is True
    assert set(metadata["real"]["unsupported_knobs"]) >= {"kv_budget_fraction", "quantization_tier"}
    assert "kv_cache_occupancy" in metadata["real"]["unmeasured"]


def test_the_batch_cap_limits_requests_in_flight() -> None:
    def hold(exchange: Exchange) -> None:
        exchange.begin()
        exchange.token()
        exchange.server.release.wait()

    with streaming_server(hold) as server:
        seen = play(
            real_episode(server, short_task(rate_rps=100.0)), lambda seen: seen[-1]["queue_depth"] > 3, batch_cap=2
        )
    assert server.most_open <= 2
    assert all(one["active_requests"] <= 2 for one in seen)


def test_requests_beyond_the_step_limit_are_not_sent_and_counted() -> None:
    with streaming_server() as server:
        task = short_task(steps=3, rate_rps=100.0)
        seen = play(real_episode(server, task, max_requests_per_step=2))
    assert counted(seen, "arrived") == 2 * 3
    assert seen[-1]["metadata"]["real"]["not_sent"] > 0


@pytest.mark.parametrize(
    ("cap", "reason"),
    [({"max_requests": 4}, "4 requests"), ({"max_tokens": 60}, "60 tokens"), ({"max_usd": 0.0001}, "0.0001 USD")],
)
def test_a_spending_cap_ends_the_episode(cap: dict[str, Any], reason: str) -> None:
    with streaming_server() as server:
        episode = real_episode(server, **cap, spread_caps=False)
        seen = play(episode)
        assert episode.step_count < 400 and seen[-1]["done"]
        assert reason in seen[-1]["metadata"]["real"]["stopped"]
        spent = seen[-1]["metadata"]["real"]["spent"]
        assert len(server.asked) <= spent["requests"]
        assert spent["requests"] <= cap.get("max_requests", 10**9)
        assert spent["prompt_tokens"] + spent["completion_tokens"] <= cap.get("max_tokens", 10**9) + 40
        with pytest.raises(EpisodeStateError, match=reason):
            episode.step(knobs_from_mapping({}))


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (lambda exchange: exchange.fail(500), "status 500"),
        (lambda exchange: exchange.fail(429, Retry_After="0.01"), "rate limited (429)"),
        (scripts.garbage, "stream is not JSON"),
        (scripts.foreign, "stream is not JSON"),
        (scripts.empty, "the stream was empty"),
    ],
)
def test_failed_requests_are_broken_promises_with_a_reason(script: Script, reason: str) -> None:
    with streaming_server(script) as server:
        seen = play(real_episode(server), failed(reason))
    assert counted(seen, "finished") == 0 and counted(seen, "rejected") > 0
    assert seen[-1]["slo_compliance_rate"] < 1.0
    assert all(np.isfinite(one["reward"]) for one in seen)


def test_a_refusal_is_tried_again_after_the_pause_the_server_asks_for() -> None:
    refused: set[str] = set()

    def busy_once(exchange: Exchange) -> None:
        text = exchange.asked["messages"][0]["content"]
        if text not in refused:
            refused.add(text)
            return exchange.fail(429, Retry_After="0.001")
        return scripts.answer_all(exchange)

    with streaming_server(busy_once) as server:
        seen = play(real_episode(server, max_retries=2), some("finished"))
    assert len(server.asked) >= 2 * counted(seen, "finished")
    assert "rate limited (429)" not in seen[-1]["metadata"]["real"]["failures"]


@pytest.mark.parametrize("script", [scripts.stall, scripts.stall_after_one])
def test_a_stalled_server_holds_up_neither_steps_nor_the_end(script: Script) -> None:
    with streaming_server(script) as server:
        seen = play(real_episode(server), lambda seen: seen[-1]["active_requests"] > 3)
        assert counted(seen, "finished") == 0


def test_silence_longer_than_allowed_is_a_failure() -> None:
    with streaming_server(scripts.stall) as server:
        play(real_episode(server, stall_timeout_s=0.05), failed("timed out", "stalled"))


def test_clients_leave_when_their_patience_ends() -> None:
    with streaming_server(scripts.stall) as server:
        seen = play(real_episode(server, short_task(), patience_s=0.05), some("abandoned"))
    assert seen[-1]["slo_compliance_rate"] == 0.0


def test_a_bad_key_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")
    with streaming_server() as server, pytest.raises(ProviderError, match="refuses the key"):
        real_episode(server)


def test_a_key_that_stops_working_ends_the_episode_with_the_reason() -> None:
    with streaming_server(lambda exchange: exchange.fail(401)) as server:
        episode = real_episode(server)
        with pytest.raises(ProviderError, match="refuses to serve us"):
            while True:
                episode.step(knobs_from_mapping(PLENTY))
        assert episode.is_done
        with pytest.raises(EpisodeStateError, match="refuses to serve us"):
            episode.step(knobs_from_mapping(PLENTY))


def test_no_key_is_an_error_that_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(MissingCredentialError, match="OPENAI_API_KEY"):
        live(RealSettings()).reset(0)


def test_a_dead_port_is_an_error_at_the_start() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = RealSettings(base_url=f"http://127.0.0.1:{port}/v1", max_retries=0)
    with pytest.raises(ProviderError, match="does not answer"):
        live(settings).reset(0)


def test_a_server_that_dies_ends_the_episode_with_the_reason() -> None:
    with streaming_server() as server:
        episode = real_episode(server)
        episode.step(knobs_from_mapping(PLENTY))
    with pytest.raises(ProviderError, match="the engine is gone"):
        while not episode.is_done:
            episode.step(knobs_from_mapping(PLENTY))
    assert episode.is_done and episode.step_count >= 1


def test_a_model_that_is_not_served_is_named_with_those_that_are() -> None:
    with streaming_server(models=["other"]) as server, pytest.raises(ProviderError, match="but other"):
        real_episode(server)


def test_a_model_without_a_price_is_refused() -> None:
    with streaming_server() as server, pytest.raises(ConfigError, match="PRICE_IN"):
        real_episode(server, price_in_usd_per_million=None)


def test_a_real_log_is_never_graded_by_replay() -> None:
    with streaming_server() as server:
        episode = real_episode(server, short_task(steps=2))
        play(episode)
    with pytest.raises(InvalidLogError, match="real mode"):
        grade(episode.log(), episode.task)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PROVIDER": "vllm",
        "MODEL": "m",
        "MAX_REQUESTS_PER_STEP": "7",
        "BASE_URL": "http://h/v1",
    }.items():
        monkeypatch.setenv(f"LLMSERVE_REAL_{name}", value)
    found = RealSettings()
    assert (found.provider, found.model, found.max_requests_per_step, found.base_url) == ("vllm", "m", 7, "http://h/v1")


def test_every_setting_is_documented() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "real.md").read_text(encoding="utf-8")
    assert [name for name in RealSettings.model_fields if f"`{name.upper()}`" not in text] == []
