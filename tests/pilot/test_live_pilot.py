"""The pilot beside a live vLLM, as `make real-test` installs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmserve_env.backends.real.launcher import VllmServer
from llmserve_env.backends.real.plugin.llmserve_steering.control import read_status
from llmserve_env.backends.real.tasks import real_task
from llmserve_env.pilot.bounds import Bounds
from llmserve_env.pilot.engine_link import VllmLink
from llmserve_env.pilot.exporter import PilotMetrics
from llmserve_env.pilot.pilot import Pilot
from tests.backends.real.live import options
from tests.pilot.engines import Wisher
from tests.server.running import ROOT

pytestmark = pytest.mark.real
BOUNDS = Bounds.model_validate(
    {
        "window_s": 0.5,
        "stale_after_s": 3_600.0,
        "knobs": {
            "batch_cap": {"low": 2, "high": 32, "max_factor": 8.0},
            "kv_budget_fraction": {"low": 0.5, "high": 1.0},
        },
    }
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """An engine with vLLM's asynchronous scheduler, steered."""
    with VllmServer(options(tmp_path_factory.mktemp("vllm"), async_scheduling=True)) as found:
        yield found


def answer(server: VllmServer, tokens: int = 4) -> int:
    """Ask the engine for a few tokens; how many came."""
    asked = {"model": "tiny", "prompt": [11, 12, 13], "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    found = httpx.post(f"{server.base_url}/completions", json=asked, timeout=600.0)
    found.raise_for_status()
    return int(found.json()["usage"]["completion_tokens"])


@contextmanager
def piloted(server: VllmServer, policy: Any, **settings: Any) -> Iterator[Pilot]:
    """A pilot of the engine, with its connections closed in the end."""
    link = VllmLink(server.base_url, server.options.folder)
    try:
        yield Pilot(real_task("tiny_server"), policy, link, BOUNDS, **settings)
    finally:
        link.close()


def decide(pilot: Pilot, server: VllmServer) -> Any:
    """A window in which the engine serves something, and the decision after it."""
    answer(server)
    return pilot.decide()


def in_force(server: VllmServer) -> tuple[int, float]:
    """What the scheduler obeys, after it has had an iteration to notice."""
    answer(server)
    status = read_status(server.options.folder)
    return status.batch_cap, 1.0 - status.withheld_blocks / status.num_blocks


def test_it_acts_and_every_decision_is_in_the_metrics(server: VllmServer) -> None:
    with piloted(server, Wisher({"batch_cap": 16, "kv_budget_fraction": 0.5})) as pilot:
        metrics = PilotMetrics(pilot)
        outcomes = [decide(pilot, server).outcome for _ in range(4)]
    assert outcomes[:2] == ["unchanged", "applied"]
    cap, share = in_force(server)
    assert cap == 16 and share == pytest.approx(0.5, abs=0.02)
    assert [decision.outcome for decision in metrics.decisions] == outcomes
    assert all(decision.reason for decision in metrics.decisions)
    assert metrics.decisions[1].reading["first_tokens"] >= 1


def test_bounds_hold_on_the_engine(server: VllmServer) -> None:
    with piloted(server, Wisher({"batch_cap": 512, "kv_budget_fraction": 0.1})) as pilot:
        for _ in range(4):
            decide(pilot, server)
    cap, share = in_force(server)
    assert cap == 32 and share == pytest.approx(0.5, abs=0.02)


def test_a_dry_run_changes_nothing_on_the_engine(server: VllmServer) -> None:
    before = in_force(server)
    with piloted(server, Wisher({"batch_cap": 3}), dry_run=True) as pilot:
        assert [decide(pilot, server).outcome for _ in range(3)][1:] == ["recommended"] * 2
    assert in_force(server) == before


def test_a_failing_policy_and_stale_metrics_fall_back_on_the_engine(server: VllmServer) -> None:
    policy = Wisher({"batch_cap": 8})
    good = in_force(server)[0]
    with piloted(server, policy) as pilot:
        decide(pilot, server)
        assert decide(pilot, server).outcome == "applied" and in_force(server)[0] == 8
        policy.failure = RuntimeError("no weights")
        assert decide(pilot, server).outcome == "fallback" and in_force(server)[0] == good
        policy.failure = None
        assert decide(pilot, server).outcome == "applied" and in_force(server)[0] == 8
    # Nothing answers at this address.
    with closing(VllmLink("http://127.0.0.1:9", server.options.folder)) as gone:
        pilot.link = gone
        stale = pilot.decide()
    assert stale.outcome == "fallback" and "does not answer" in stale.reason and in_force(server)[0] == good


def test_kill_9_leaves_the_engine_serving_under_its_last_limits(server: VllmServer, tmp_path: Path) -> None:
    bounds, log, policy = tmp_path / "bounds.yaml", tmp_path / "log.jsonl", tmp_path / "policy.py"
    bounds.write_text("window_s: 0.5\nstale_after_s: 3600\nknobs: {batch_cap: {low: 2, high: 32, max_factor: 16}}\n")
    policy.write_text("def act(observation):\n    return {'batch_cap': 5}\n")
    command = [sys.executable, "-m", "llmserve_env.cli.main", "pilot", "--engine", server.base_url]
    command += ["--control-dir", str(server.options.folder), "--bounds", str(bounds), "--log", str(log)]
    command += ["--policy", f"{policy}:act", "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    busy = threading.Event()
    talker = threading.Thread(target=lambda: [answer(server) for _ in iter(busy.is_set, True)])
    talker.start()
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert any("applied: batch_cap=5" in line for line in process.stdout)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            busy.set()
            talker.join()
    assert answer(server, 8) == 8 and in_force(server)[0] == 5
    assert any(json.loads(line)["outcome"] == "applied" for line in log.read_text().splitlines())
