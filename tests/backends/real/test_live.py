"""Real mode against a live vLLM, as `make real-test` installs it: every knob is seen to act on its own metrics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmserve_env.backends.real.backend import LiveBackend
from llmserve_env.backends.real.launcher import VllmServer
from llmserve_env.backends.real.recording import number_in, read_recording
from llmserve_env.backends.real.tasks import data_folder
from llmserve_env.backends.real.vllm_provider import VllmProvider
from llmserve_env.engine.knobs import knobs_from_mapping
from llmserve_env.env.episode import Episode
from llmserve_env.env.observation import observe
from llmserve_env.errors import ProviderError
from llmserve_env.models import ServeObservation
from llmserve_env.tasks.catalog import BENCHMARK
from llmserve_env.tasks.task import Task
from llmserve_env.workloads import sample
from tests.backends.real.live import artifacts, options, until, vllm
from tests.backends.real.playing import short_task
from tests.server.running import ROOT, RunningServer

__all__ = ["vllm"]
pytestmark = pytest.mark.real
SATURATED_RPS = 60.0
PATIENT = {
    "request_timeout_s": 3_600.0,
    "stall_timeout_s": 600.0,
    "connect_timeout_s": 60.0,
    "max_requests": 10**6,
    "max_tokens": 10**9,
}
"""A machine that does other work as well makes an engine slow, but not wrong."""
DRAFTS, DRAFTED = "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_draft_tokens_total"


class Live:
    """An episode on the live server, far beyond its capacity, and the server's own figures after each window."""

    def __init__(self, server: VllmServer, task: Task, **overrides: Any) -> None:
        settings = server.settings(max_requests_per_step=1000, **PATIENT, **overrides)
        self.backend = LiveBackend(task, settings)
        self.episode = Episode(task, backend=self.backend)
        self.episode.reset(1)
        provider = self.backend.provider
        assert isinstance(provider, VllmProvider)
        self.provider = provider

    def step(self, **action: Any) -> dict[str, Any]:
        self.episode.step(knobs_from_mapping(action))
        return {**observe(self.episode), "server": dict(self.provider.totals())}


def saturated(steps: int = 1_500) -> Task:
    """Short windows, long answers, and more of them than can be served."""
    return short_task(steps=steps, rate_rps=SATURATED_RPS, window_s=0.25, output_tokens=(40, 60))


@pytest.fixture
def live(vllm: VllmServer) -> Iterator[Live]:
    found = Live(vllm, saturated())
    yield found
    found.episode.close()


def running(seen: dict[str, Any]) -> float:
    return float(seen["server"]["vllm:num_requests_running"])


def test_the_batch_cap_is_what_runs(live: Live) -> None:
    low = until(lambda: live.step(batch_cap=3), lambda seen: running(seen) == 3 and seen["queue_depth"] > 5)
    assert low["active_requests"] <= 3
    high = until(lambda: live.step(batch_cap=12), lambda seen: running(seen) == 12)
    assert high["metadata"]["real"]["in_force"]["batch_cap"] == 12
    until(lambda: live.step(batch_cap=2), lambda seen: running(seen) == 2)


def test_the_kv_budget_takes_blocks_out_of_the_pool(live: Live) -> None:
    full = until(lambda: live.step(batch_cap=4), lambda seen: running(seen) == 4)
    assert full["server"]["vllm:kv_cache_usage_perc"] < 0.3
    half = until(
        lambda: live.step(batch_cap=4, kv_budget_fraction=0.5),
        lambda seen: seen["server"]["vllm:kv_cache_usage_perc"] > 0.49,
    )
    assert half["kv_cache_occupancy"] < 0.3
    assert half["gpu_memory_used_gb"] < full["gpu_memory_used_gb"]
    until(lambda: live.step(batch_cap=4), lambda seen: seen["server"]["vllm:kv_cache_usage_perc"] < 0.3)


def test_a_small_pool_makes_requests_lose_their_blocks(vllm: VllmServer) -> None:
    found = Live(vllm, short_task(steps=4_000, rate_rps=SATURATED_RPS, window_s=0.25, output_tokens=(200, 250)))
    try:
        began = found.provider.status().iterations
        # 64 requests of 200 tokens need three times the blocks that are left, after 200 iterations at the latest.
        until(
            lambda: found.step(batch_cap=64, kv_budget_fraction=0.25),
            lambda seen: seen["eviction_events"] > 0 or found.provider.status().iterations - began > 2_000,
            limit=4_000,
        )
        assert found.provider.totals()["vllm:num_preemptions_total"] > 0
    finally:
        found.episode.close()


def test_the_speculation_depth_cuts_drafts(live: Live) -> None:
    until(lambda: live.step(batch_cap=4, speculation_depth=4), lambda seen: seen["spec_acceptance_rate"] > 0.0)
    live.step(batch_cap=4, speculation_depth=1)
    before = live.step(batch_cap=4, speculation_depth=1)["server"]
    after = until(
        lambda: live.step(batch_cap=4, speculation_depth=1), lambda seen: seen["server"][DRAFTS] > before[DRAFTS] + 5
    )["server"]
    assert after[DRAFTED] - before[DRAFTED] == after[DRAFTS] - before[DRAFTS]
    live.step(batch_cap=4, speculation_depth=0)
    before = live.step(batch_cap=4, speculation_depth=0)["server"]
    assert live.step(batch_cap=4, speculation_depth=0)["server"][DRAFTED] == before[DRAFTED]


def rows_of(path: Path) -> list[tuple[set[int], set[int]]]:
    """Per iteration, from the engine's own record: requests handed over before it, and those that began in it."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [tuple({number_in(name) for name in row[key]} for key in ("added", "first")) for row in rows]  # type: ignore[misc]


def test_priorities_let_urgent_requests_overtake(vllm: VllmServer) -> None:
    task = saturated()
    urgent = {q for q, priority in enumerate(sample(task.workload, 1).priority.tolist()) if priority == 0}
    found = Live(vllm, task, record_iterations=True)
    path = found.provider.iterations_path
    try:
        until(lambda: found.step(batch_cap=4, priority_routing=True), lambda seen: seen["queue_depth"] > 40)
        until(
            lambda: found.step(batch_cap=4, priority_routing=True),
            lambda _: sum(len(first & urgent) for _, first in rows_of(path)) >= 20,
            limit=1_000,
        )
        # The end of an episode takes waiting requests away, urgent ones too.
        rows = rows_of(path)
    finally:
        found.episode.close()
    waiting: set[int] = set()
    overtaken: set[int] = set()
    for added, first in rows:
        waiting = (waiting | added) - first
        # Whoever begins is urgent, or nobody urgent is left waiting.
        assert first <= urgent or not waiting & urgent
        overtaken |= waiting - urgent if first else set()
    assert overtaken


def test_the_token_budget_bounds_iterations(vllm: VllmServer) -> None:
    found = Live(vllm, saturated(), record_iterations=True)
    try:
        until(lambda: found.step(batch_cap=8, token_budget=16), lambda seen: running(seen) >= 4)
        recording = read_recording(found.provider.iterations_path, "FP16")
        assert max(i.decoding + i.prefill_tokens for i in recording.iterations) <= 16
        until(lambda: found.step(batch_cap=64), lambda seen: running(seen) >= 32)
        recording = read_recording(found.provider.iterations_path, "FP16")
        assert max(i.decoding + i.prefill_tokens for i in recording.iterations) > 16
    finally:
        found.episode.close()


def test_tier_and_split_say_that_they_need_a_restart(live: Live) -> None:
    seen = live.step(quantization_tier="INT8")
    assert "restart" in seen["metadata"]["real"]["unsupported_knobs"]["quantization_tier"]
    assert seen["metadata"]["knobs"]["quantization_tier"] == "FP16"
    assert "quantization_tier" in seen["metadata"]["held_knobs"]


def real_server(server: VllmServer) -> RunningServer:
    """The environment's own server, in real mode."""
    variables: dict[str, Any] = {
        "LLMSERVE_MODE": "real",
        "LLMSERVE_REAL_PROVIDER": "vllm",
        "LLMSERVE_REAL_MODEL": server.options.served_name,
        "LLMSERVE_REAL_BASE_URL": server.base_url,
        "LLMSERVE_REAL_CONTROL_DIR": str(server.options.folder),
        "LLMSERVE_TASKS": str(data_folder()),
        **{f"LLMSERVE_REAL_{name.upper()}": str(value) for name, value in PATIENT.items()},
    }
    return RunningServer("memory", **variables)


def test_a_short_episode_over_http(vllm: VllmServer) -> None:
    transcript: list[dict[str, Any]] = []

    def finished() -> int:
        return sum(answer["observation"]["metadata"]["counts"]["finished"] for answer in transcript)

    with (
        real_server(vllm) as server,
        httpx.Client(base_url=server.url, timeout=600) as client,
    ):
        begun = client.post("/reset", json={"task_id": "tiny_server", "seed": 1}).json()
        name = begun["session_id"]
        # A busy machine may finish no request in eight windows; the episode has fifty.
        while len(transcript) < 8 or not finished():
            action = {"batch_cap": min(2 + len(transcript), 9), "kv_budget_fraction": 0.5, "priority_routing": True}
            answer = client.post("/step", json={"session_id": name, "action": action}).json()
            ServeObservation.model_validate({**answer["observation"], "reward": answer["reward"], "done": False})
            assert answer["observation"]["metadata"]["mode"] == "real"
            transcript.append(answer)
        state = client.get("/state", params={"session_id": name}).json()
        assert state["step_count"] == len(transcript)
        log = client.get("/log", params={"session_id": name}).json()
        refused = client.post("/grader", json={"episode_log": log})
        assert refused.status_code == 422 and "real mode" in refused.json()["detail"]
    (artifacts() / "http_episode.json").write_text(json.dumps(transcript, indent=1), encoding="utf-8")


def test_a_server_that_dies_ends_the_episode_and_a_restart_has_a_price(tmp_path: Path) -> None:
    with VllmServer(options(tmp_path / "vllm")) as server:
        task = saturated()
        episode = Episode(task, backend=LiveBackend(task, server.settings(**PATIENT)))
        episode.reset(1)
        episode.step(knobs_from_mapping({}))
        server.stop()
        with pytest.raises(ProviderError):
            while not episode.is_done:
                episode.step(knobs_from_mapping({}))
        assert episode.is_done
        episode.close()
        with pytest.raises(ProviderError, match="does not answer"):
            Episode(task, backend=LiveBackend(task, server.settings())).reset(1)
        cost_s = server.restart(options(tmp_path / "vllm", max_batch_cap=16))
    (artifacts() / "restart.json").write_text(json.dumps({"restart_s": round(cost_s, 1)}), encoding="utf-8")


def run_agent(server: VllmServer, *command: str) -> str:
    """Run a command whose language model is the live server; what it said."""
    variables = {"API_BASE_URL": server.base_url, "MODEL_NAME": server.options.served_name, "OPENAI_API_KEY": "none"}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_openai_baseline_plays_with_structured_output(vllm: VllmServer) -> None:
    path = artifacts() / "baseline_openai.json"
    command = ("-m", "server.baseline_inference", "--mode", "openai", "--runtime", "in-process")
    run_agent(vllm, *command, "--model", "tiny", "--decide-every", "20", "--output", str(path))
    report = json.loads(path.read_text(encoding="utf-8"))
    assert tuple(report["tasks"]) == BENCHMARK
    assert report["usage"]["calls"] == 30 and report["usage"]["unparsable_answers"] == 0


def test_the_submission_script_plays_with_structured_output(vllm: VllmServer) -> None:
    said = run_agent(vllm, "inference.py", "--decide-every", "20")
    (artifacts() / "inference.txt").write_text(said, encoding="utf-8")
    assert said.count("[STEP]") == 600 and said.count("[END] success=true") == 3
    assert "unparsable" in said and "'unparsable_answers': 0" in said
