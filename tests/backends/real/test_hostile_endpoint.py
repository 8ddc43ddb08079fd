"""An endpoint that echoes keys, bills nonsense, never stops or drips: nothing of it reaches clients or the bill."""

from __future__ import annotations

import gzip
import json
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from llmserve_env.backends.real.guard import MAX_LIST_BYTES, UsageError, checked_usage, fetch_text, quoted
from llmserve_env.engine.knobs import knobs_from_mapping
from llmserve_env.env.episode import Episode
from llmserve_env.errors import ProviderError
from tests.backends.real import streaming_server as scripts
from tests.backends.real.playing import PLENTY, counted, failed, key, play, real_episode, short_task
from tests.backends.real.streaming_server import KEY, Exchange, streaming_server

__all__ = ["key"]
pytestmark = pytest.mark.usefixtures("key")


def echoing(exchange: Exchange) -> None:
    """A refusal that repeats what it was asked with."""
    exchange.fail(401, message=f"invalid key {KEY}, header Bearer {KEY}, and sk-abcdefghijkl " + "x" * 5_000)


def assert_says_no_key(error: BaseException) -> None:
    words = []
    found: BaseException | None = error
    while found is not None:
        words.append(str(found))
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    assert KEY not in " ".join(words) and "sk-abc" not in " ".join(words)
    assert len(str(error)) < 600


def test_a_refused_key_is_not_repeated_at_the_start() -> None:
    with streaming_server(models=echoing) as server, pytest.raises(ProviderError, match="refuses the key") as caught:
        real_episode(server)
    assert_says_no_key(caught.value)


def test_a_key_that_stops_working_is_not_repeated() -> None:
    with streaming_server(echoing) as server:
        episode = real_episode(server)
        with pytest.raises(ProviderError, match="refuses to serve us") as caught:
            while True:
                episode.step(knobs_from_mapping(PLENTY))
    assert_says_no_key(caught.value)


def billing(prompt: Any, completion: Any) -> Any:
    """An answer with this usage."""

    def script(exchange: Exchange) -> None:
        exchange.begin()
        exchange.token()
        exchange.event({**scripts.chunk([]), "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})
        exchange.event("[DONE]")

    return script


@pytest.mark.parametrize(
    ("prompt", "completion"), [(-(10**9), 5), (20, -7), ("20", 5), (10**30, 5), (20, 10**6), (True, 1)]
)
def test_a_usage_that_cannot_be_true_fails_the_request_at_its_worst_case(prompt: Any, completion: Any) -> None:
    with streaming_server(billing(prompt, completion)) as server:
        seen = play(real_episode(server), failed("impossible usage"))
    spent = seen[-1]["metadata"]["real"]["spent"]
    assert spent["usd"] > 0.0 and spent["prompt_tokens"] > 0
    assert counted(seen, "finished") == 0
    assert all(-1.0 <= one["reward"] <= 1.0 and np.isfinite(one["reward"]) for one in seen)


def test_usage_is_bounded_by_what_was_asked() -> None:
    usage = SimpleNamespace(prompt_tokens=30, completion_tokens=5)
    assert checked_usage(usage, 20, 5) == (30, 5)
    with pytest.raises(UsageError, match="5 completion tokens, at most 4"):
        checked_usage(usage, 20, 4)


def test_a_stream_with_more_tokens_than_asked_for_is_cut_off() -> None:
    def chatter(exchange: Exchange) -> None:
        exchange.begin()
        while True:
            exchange.token()

    with streaming_server(chatter) as server:
        seen = play(real_episode(server, short_task(steps=40)), failed("more tokens than asked for"))
    assert counted(seen, "finished") == 0


def test_an_event_that_never_ends_is_cut_off() -> None:
    def endless_line(exchange: Exchange) -> None:
        exchange.begin()
        while True:
            exchange.handler.wfile.write(b"data: " + b"x" * 65_536)

    with streaming_server(endless_line) as server:
        play(real_episode(server, max_answer_bytes=200_000), failed("answer too large"))


def models_of(body: bytes, **headers: str) -> Any:
    """A list of models with this body."""

    def script(exchange: Exchange) -> None:
        exchange.handler.send_response(200)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            exchange.handler.send_header(name.replace("_", "-"), value)
        exchange.handler.end_headers()
        exchange.handler.wfile.write(body)

    return script


def test_a_huge_list_of_models_is_not_read_to_its_end() -> None:
    huge = b'{"object": "list", "data": [' + b" " * (MAX_LIST_BYTES + 65_536)
    with streaming_server(models=models_of(huge)) as server, pytest.raises(ProviderError, match="answer too large"):
        real_episode(server)


def test_a_packed_list_of_models_is_not_unpacked() -> None:
    packed = gzip.compress(b" " * 50_000_000)
    script = models_of(packed, Content_Encoding="gzip")
    with streaming_server(models=script) as server, pytest.raises(ProviderError, match="answer too large"):
        real_episode(server)


def test_a_dripping_list_of_models_ends_with_the_time_for_it() -> None:
    def drip(exchange: Exchange) -> None:
        models_of(b"{")(exchange)
        while not exchange.server.release.wait(0.02):
            exchange.handler.wfile.write(b" ")

    with streaming_server(models=drip) as server, pytest.raises(ProviderError, match="does not answer within"):
        real_episode(server, connect_timeout_s=0.3)


def test_a_list_of_models_that_is_none_is_refused() -> None:
    body = json.dumps({"object": "list", "data": 7}).encode()
    with streaming_server(models=models_of(body)) as server, pytest.raises(ProviderError, match="OpenAI's protocol"):
        real_episode(server)


def test_metrics_that_never_end_are_not_read_to_their_end() -> None:
    endless = models_of(b"x" * (MAX_LIST_BYTES + 65_536))
    with (
        streaming_server(models=endless) as server,
        httpx.Client() as client,
        pytest.raises(httpx.ReadError, match="longer than"),
    ):
        fetch_text(client, f"{server.base_url}/models", 60.0)


def test_quotes_are_short_single_lines_without_keys() -> None:
    said = quoted(f"no\n\n{KEY} Authorization: Bearer abcdef hf_abcdefgh " + "y" * 1_000, KEY)
    assert KEY not in said and "abcdef" not in said and "\n" not in said and len(said) <= 301


def test_an_episode_against_a_hostile_endpoint_ends_cleanly() -> None:
    with streaming_server(billing(-(10**9), -(10**9))) as server:
        episode: Episode = real_episode(server, short_task(steps=3))
        play(episode)
    assert episode.is_done
