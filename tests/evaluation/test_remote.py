"""Agents over the wire play as they do in process."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from llmserve_env.agents.agent import view_of
from llmserve_env.agents.registry import make_agent
from llmserve_env.cli.main import main
from llmserve_env.env.episode import Episode
from llmserve_env.env.observation import observe
from llmserve_env.env.wire_names import WIRE_NAMES
from llmserve_env.errors import ConfigError
from llmserve_env.evaluation.evaluate import result_of
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.remote import play_remote, view_from_wire
from llmserve_env.tasks.catalog import load_task
from tests.server.running import RunningServer


def test_the_view_from_the_wire_is_the_view_in_process() -> None:
    episode = Episode("bursty_workload")
    episode.reset(3)
    knobs = make_agent("default_knobs").act(view_of(episode.batch, 0))[0]
    for _ in range(20):
        episode.step(knobs)
    wire, here = view_from_wire(episode.task, SimpleNamespace(**observe(episode))), view_of(episode.batch, 20)
    assert wire.step == here.step
    assert wire.knobs.tolist() == here.knobs.tolist()
    assert wire.preemptions.tolist() == here.preemptions.tolist()
    assert {name: wire.metrics[name][0] for name in WIRE_NAMES} == {n: here.metrics[n][0] for n in WIRE_NAMES}


def test_a_metric_that_the_wire_does_not_carry_is_an_error() -> None:
    episode = Episode("bursty_workload")
    episode.reset(3)
    view = view_from_wire(episode.task, SimpleNamespace(**observe(episode)))
    with pytest.raises(ValueError, match="window_rate_rps"):
        view.metrics["window_rate_rps"]


def test_an_agent_that_branches_the_simulator_is_refused() -> None:
    with pytest.raises(ConfigError, match="in process"):
        play_remote(SimpleNamespace(), make_agent("planner"), load_task(1), 0)


@pytest.mark.slow
def test_the_baseline_over_http_is_the_baseline_in_process(tmp_path: Path) -> None:
    output = tmp_path / "baseline.json"
    with RunningServer("memory") as server:
        options = ["--runtime", "http", "--base-url", server.url, "--task", "1", "2", "--output", str(output)]
        assert main(["baseline", "--mode", "deterministic", *options]) == 0
    report = json.loads(output.read_text(encoding="utf-8"))
    for task_id, agents in report["tasks"].items():
        for name, grade in agents.items():
            here = result_of(name, play(make_agent(name), load_task(task_id), [report["seed"]])[0])
            assert grade["score"] == pytest.approx(here.score, abs=1e-12)


def test_the_baseline_command_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert main(["baseline", "--mode", "openai"]) == 2
    assert "OPENAI_API_KEY" in capsys.readouterr().err
