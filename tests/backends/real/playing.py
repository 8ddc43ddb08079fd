"""A tiny task, and real episodes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llmserve_env.backends.real.backend import LiveBackend
from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.engine.knobs import knobs_from_mapping
from llmserve_env.env.episode import Episode
from llmserve_env.env.observation import observe
from llmserve_env.tasks.task import Task, parse_task
from tests.backends.real.streaming_server import KEY, MODEL, StreamingServer

PLENTY: dict[str, Any] = {"batch_cap": 64}
SHAPE = {
    "prompt_tokens": {"kind": "uniform", "low": 10, "high": 20},
    "acceptance": {"base": 0.5},
}


def short_task(
    steps: int = 400,
    rate_rps: float = 40.0,
    window_s: float = 0.05,
    patience_s: float | None = None,
    output_tokens: tuple[int, int] = (3, 6),
) -> Task:
    """Short windows with about two requests each, urgent and not; tests stop as soon as they have seen enough."""
    outputs = {"kind": "uniform", "low": output_tokens[0], "high": output_tokens[1]}
    shape = {**SHAPE, "output_tokens": outputs, "share": 0.5}
    return parse_task(
        {
            "id": "short",
            "version": 1,
            "name": "Short",
            "difficulty": "custom",
            "description": "A few requests.",
            "teaches": "nothing",
            "steps": steps,
            "window_s": window_s,
            "workload": {
                "horizon_s": max(int(steps * window_s) + 1, 1),
                "classes": [
                    {"name": "urgent", "ttft_slo_ms": 1000, "patience_s": patience_s},
                    {"name": "patient", "ttft_slo_ms": 5000, "patience_s": patience_s},
                ],
                "sources": [
                    {
                        "tenant": "app",
                        "arrivals": {"kind": "poisson", "rate_rps": rate_rps},
                        "kinds": [{"class": name, **shape} for name in ("urgent", "patient")],
                    }
                ],
            },
            "deployment": {
                "profile": "a100-40gb.llama-3-8b",
                "replicas": 1,
                "memory_limit_gb": 40.0,
                "waiting_room": [1000, 1000],
            },
            "knobs": {
                "active": [
                    "batch_cap",
                    "token_budget",
                    "kv_budget_fraction",
                    "speculation_depth",
                    "quantization_tier",
                    "priority_routing",
                ]
            },
            "reward": {
                "weights": {"throughput": 0.4, "latency": 0.25, "violations": 0.25, "cost": 0.1, "memory": 0.1},
                "itl_comfort_ms": 10.0,
                "itl_limit_ms": 50.0,
                "class_weights": {"urgent": 1.0, "patient": 0.5},
                "quality": {"urgent": [1.0, 0.9, 0.8], "patient": [1.0, 0.9, 0.8]},
            },
            "grader": {"weights": {"throughput": 0.5, "slo": 0.5}},
        }
    )


def settings_for(server: StreamingServer, **overrides: Any) -> RealSettings:
    """Settings that lead to the server and give up soon."""
    given = {
        "provider": "openai",
        "model": MODEL,
        "base_url": server.base_url,
        "price_in_usd_per_million": 1.0,
        "price_out_usd_per_million": 2.0,
        "max_retries": 0,
        **overrides,
    }
    return RealSettings(**given)


def real_episode(server: StreamingServer, task: Task | None = None, **overrides: Any) -> Episode:
    """An episode that has been reset."""
    task = task or short_task()
    episode = Episode(task, backend=LiveBackend(task, settings_for(server, **overrides)))
    episode.reset(3)
    return episode


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """The right key in the environment."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return KEY


def play(
    episode: Episode, until: Callable[[list[dict[str, Any]]], bool] | None = None, **action: Any
) -> list[dict[str, Any]]:
    """Play to the end, or until enough was seen; observations of every step."""
    seen: list[dict[str, Any]] = []
    with episode:
        while not episode.is_done and not (seen and until and until(seen)):
            episode.step(knobs_from_mapping({**PLENTY, **action}))
            seen.append(observe(episode))
    assert until is None or until(seen), "the episode ended before it happened"
    return seen


def counted(seen: list[dict[str, Any]], name: str) -> int:
    return sum(one["metadata"]["counts"][name] for one in seen)


def some(name: str) -> Callable[[list[dict[str, Any]]], bool]:
    """Until a few of these were counted."""
    return lambda seen: counted(seen, name) >= 3


def failed(*reasons: str) -> Callable[[list[dict[str, Any]]], bool]:
    """Until a request has failed for one of these reasons."""
    return lambda seen: bool(set(reasons) & set(seen[-1]["metadata"]["real"]["failures"]))
