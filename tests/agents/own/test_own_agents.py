"""Agents of one's own: the examples of the documentation, what agents see and return, and what is refused."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from llmserve_env.agents.agent import view_of
from llmserve_env.agents.own.loading import load_agent
from llmserve_env.agents.own.simple import SimpleAgents, task_facts
from llmserve_env.env.episode import Episode
from llmserve_env.env.observation import observe
from llmserve_env.errors import AgentError, ConfigError, InvalidActionError, WeightsNotFoundError
from llmserve_env.evaluation.evaluate import evaluate
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.remote import view_from_wire
from llmserve_env.graders import grade_episode
from llmserve_env.models import ServeObservation
from llmserve_env.tasks.catalog import load_task
from tests.agents.own.examples import examples, running_service, written
from tests.agents.playing import rewards

TASK = load_task("bursty_workload")


def agent_file(folder: Path, source: str) -> str:
    path = folder / "agent.py"
    path.write_text(source, encoding="utf-8")
    return str(path)


def test_the_examples_have_twenty_lines_of_code_at_most() -> None:
    for source in examples().values():
        code = [line for line in source.splitlines() if line.strip() and not line.startswith('"""')]
        assert len(code) <= 20


def test_the_example_file_beats_the_defaults(tmp_path: Path) -> None:
    spec = f"{written('my_agent.py', tmp_path)}:MyAgent"
    mine, defaults = (
        [grade_episode(episode).score for episode in play(load_agent(name), TASK, [301_000, 301_001])]
        for name in (spec, "default_knobs")
    )
    assert min(mine) > max(defaults)


def test_the_example_service_plays_as_a_constant_rule_would(tmp_path: Path) -> None:
    source = (
        "def decide(seen):\n"
        "    return {'batch_cap': 192 if seen['queue_depth'] > 0 else 96, 'kv_budget_fraction': 0.4}\n"
    )
    here = evaluate([f"{agent_file(tmp_path, source)}:decide"], [TASK], [301_000])
    with running_service(tmp_path) as address:
        there = evaluate([address], [TASK], [301_000])
    assert here[0].score == there[0].score > 0.0


def test_an_agent_sees_what_the_wire_carries() -> None:
    seen: list[dict[str, Any]] = []

    class Watcher:
        def reset(self, task: dict[str, Any], seed: int) -> None:
            """Nothing to prepare."""

        def act(self, observation: dict[str, Any]) -> dict[str, Any]:
            seen.append(observation)
            return {"batch_cap": 64}

    rewards(SimpleAgents("watcher", Watcher), "bursty_workload", [7], steps=12)
    episode = Episode(TASK)
    episode.reset(7)
    for observation in seen:
        assert json.loads(json.dumps(observation)) == json.loads(json.dumps(observe(episode)))
        episode.step(TASK.knobs_from_mapping({"batch_cap": 64}))


def test_knobs_that_an_action_leaves_out_keep_their_values() -> None:
    answers: list[dict[str, Any]] = [{"batch_cap": 64}, {"kv_budget": 0.5}, {}]

    class Scripted:
        def reset(self, task: dict[str, Any], seed: int) -> None:
            self.left = list(answers)

        def act(self, observation: dict[str, Any]) -> dict[str, Any]:
            return self.left.pop(0)

    episode, agent = Episode(TASK), SimpleAgents("scripted", Scripted)
    episode.reset(1)
    agent.reset(TASK, [np.random.default_rng(0)])
    for step in range(3):
        episode.step(agent.act(view_of(episode.batch, step))[0])
    knobs = observe(episode)["metadata"]["knobs"]
    assert (knobs["batch_cap"], knobs["kv_budget_fraction"]) == (64, 0.5)


def test_a_file_may_import_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "cap_beside_the_agent.py").write_text("CAP = 33\n", encoding="utf-8")
    source = "from cap_beside_the_agent import CAP\ndef decide(seen):\n    return {'batch_cap': CAP}\n"
    played = play(load_agent(f"{agent_file(tmp_path, source)}:decide"), TASK, [1])[0]
    assert set(played.trajectory.knobs[:, 0]) == {33.0}


def test_every_episode_has_an_object_of_its_own(tmp_path: Path) -> None:
    source = (
        "class Counter:\n"
        "    def reset(self, task, seed):\n        self.calls = 0\n"
        "    def act(self, observation):\n        self.calls += 1\n        return {'batch_cap': self.calls}\n"
    )
    spec = f"{agent_file(tmp_path, source)}:Counter"
    together, alone = rewards(load_agent(spec), "static_workload", [3, 4], 20), None
    alone = rewards(load_agent(spec), "static_workload", [4], 20)
    assert np.array_equal(together[:, 1], alone[:, 0])


def test_the_facts_of_a_task_are_plain_data() -> None:
    facts = task_facts(TASK)
    assert json.loads(json.dumps(facts)) == facts
    assert facts["knobs"]["quantization_tier"] == {
        "is_active": False, "kind": "tier", "low": 0, "high": 2, "levels": ["FP16", "INT8", "INT4"], "default": "FP16",
        "dwell_steps": 0,
    }  # fmt: skip


def test_a_class_of_the_vectorised_protocol_plays_as_it_is() -> None:
    spec = "llmserve_env.agents.heuristic:HeuristicAgent"
    own, shipped = (rewards(load_agent(name), "bursty_workload", [5], 30) for name in (spec, "heuristic"))
    assert np.array_equal(own, shipped)


def test_weights_reach_a_class_that_takes_them(tmp_path: Path) -> None:
    source = (
        "import json\n"
        "class FromFile:\n"
        "    def __init__(self, weights):\n        self.knobs = json.loads(weights.read_text())\n"
        "    def reset(self, task, seed):\n        pass\n"
        "    def act(self, observation):\n        return self.knobs\n"
    )
    weights = tmp_path / "knobs.json"
    weights.write_text('{"batch_cap": 17}', encoding="utf-8")
    agent = load_agent(f"{agent_file(tmp_path, source)}:FromFile", weights=weights)
    played = play(agent, TASK, [1])[0]
    assert set(played.trajectory.knobs[:, 0]) == {17.0}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("nobody", "there is no agent 'nobody'"),
        ("nothing.py:Agent", "there is no file"),
        (
            "no_such_package.module:Agent",
            "no installed module 'no_such_package.module'.* no_such_package/module.py:Agent",
        ),
        ("llmserve_env.agents.heuristic:Missing", "defines no 'Missing'"),
        ("llmserve_env.agents.heuristic:MIN_CAP", "is of type int"),
        ("llmserve_env.agents.agent:AgentView", "has no reset and no act"),
        (":Agent", "names no file and no module"),
        ("..agents:Agent", "names no file and no module"),
        ("llmserve_env.agents.heuristic:", "defines nothing without a name"),
        ("http://", "is no address"),
        ("https://[half", "is no address"),
        ("http://127.0.0.1:99999", "is no address"),
    ],
)
def test_an_agent_that_cannot_be_found_is_an_error_that_says_why(spec: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load_agent(spec)


@pytest.mark.parametrize("spec", ["tuned", "http://127.0.0.1:9", "safetensors:nowhere"])
def test_weights_for_an_agent_that_takes_none_are_refused(spec: str) -> None:
    with pytest.raises(ConfigError, match="--weights"):
        load_agent(spec, weights=Path("w"))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("{'batch_cap': 9999}", r"decide, step 1: batch_cap must be a whole number from 1 to 512; got 9999"),
        ("{'batchcap': 9}", "step 1: unknown field 'batchcap'"),
        ("[64, 0.5]", r"act\(\) must return a dictionary"),
    ],
)
def test_an_action_that_is_none_is_refused_with_its_step(tmp_path: Path, answer: str, reason: str) -> None:
    spec = f"{agent_file(tmp_path, f'def decide(seen):{chr(10)}    return {answer}')}:decide"
    with pytest.raises(InvalidActionError, match=reason):
        play(load_agent(spec), TASK, [1])


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (500, b"{}", "answered 500"),
        (200, b"hello", "did not answer with JSON"),
        (200, b"[" * 100_000, "did not answer with JSON"),
        (200, b'{"batch_cap": 1}', "must answer"),
    ],
)
def test_a_service_that_does_not_decide_ends_the_evaluation(status: int, body: bytes, reason: str) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(AgentError, match=reason):
            play(load_agent(f"http://127.0.0.1:{server.server_port}"), TASK, [1])
    finally:
        server.shutdown()
        server.server_close()


def test_a_service_that_nobody_runs_is_an_error() -> None:
    with pytest.raises(AgentError, match="no answer from the policy service"):
        play(load_agent("http://127.0.0.1:9"), TASK, [1])


def test_a_folder_of_weights_plays_as_the_shipped_policy_and_on_unseen_tasks() -> None:
    folder = Path(__file__).resolve().parents[3] / "llmserve_env" / "weights" / "bursty_workload"
    own, shipped = (rewards(load_agent(name), "bursty_workload", [5], 30) for name in (f"safetensors:{folder}", "ppo"))
    assert np.array_equal(own, shipped)
    assert np.isfinite(rewards(load_agent(f"safetensors:{folder}"), "burstgpt", [5], 5)).all()


def test_a_missing_folder_of_weights_is_an_error() -> None:
    with pytest.raises(WeightsNotFoundError, match="nowhere"):
        play(load_agent("safetensors:nowhere"), TASK, [1])


def onnx_policy(path: Path, width: int, levels: int) -> None:
    onnx = pytest.importorskip("onnx", reason="needs the extra [onnx]: pip install '.[onnx]' onnx")
    weight = np.zeros((width, levels), np.float32)
    bias = np.arange(levels, dtype=np.float32)
    parts = [onnx.numpy_helper.from_array(weight, "w"), onnx.numpy_helper.from_array(bias, "b")]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Gemm", ["features", "w", "b"], ["logits"])],
        "policy",
        [onnx.helper.make_tensor_value_info("features", onnx.TensorProto.FLOAT, [None, width])],
        [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [None, levels])],
        parts,
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), path)


def test_an_onnx_policy_takes_the_most_probable_level(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra [onnx]: pip install '.[onnx]'")
    path = tmp_path / "policy.onnx"
    onnx_policy(path, 38, sum(len(knob.levels) for knob in TASK.action_knobs))
    agent = load_agent(f"onnx:{path}")
    played = play(agent, TASK, [1])[0]
    assert played.trajectory.knobs[-1][:3].tolist() == [512.0, 1.0, 8.0]
    narrow = tmp_path / "narrow.onnx"
    onnx_policy(narrow, 5, 3)
    with pytest.raises(ConfigError, match="takes 5 features"):
        load_agent(f"onnx:{narrow}").reset(TASK, [])


@pytest.mark.parametrize(
    ("spec", "reason"), [("onnx:nowhere.onnx", "no file"), ("safetensors:nowhere", "nowhere holds no ppo.safetensors")]
)
def test_a_missing_network_is_an_error(spec: str, reason: str) -> None:
    with pytest.raises(WeightsNotFoundError, match=reason):
        load_agent(spec)


def test_a_view_from_the_wire_shows_the_same_observation() -> None:
    episode = Episode(TASK)
    episode.reset(3)
    episode.step(TASK.default_knobs)
    seen = view_from_wire(TASK, ServeObservation.model_validate(observe(episode))).observed(0)
    assert seen == observe(episode)
