"""Agents of one's own that fail: the error names the agent, the step and the line of its author's file."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pytest

from llmserve_env.agents.own.loading import load_agent
from llmserve_env.agents.own.simple import SimpleAgents
from llmserve_env.cli.main import main
from llmserve_env.env.episode import Episode
from llmserve_env.env.observation import observe
from llmserve_env.errors import AgentError, ConfigError, InvalidActionError
from llmserve_env.evaluation.play import play
from llmserve_env.tasks.catalog import load_task
from tests.agents.playing import rewards

TASK = load_task("static_workload")
AGENTS = """
    import numpy as np

    class Calm:
        def reset(self, task, seed):
            pass
        def act(self, observation):
            return {}

    class RaisesLater(Calm):
        def act(self, observation):
            return {"batch_cap": 64 // (3 - observation["step_index"])}

    class RaisesAtReset(Calm):
        def reset(self, task, seed):
            raise RuntimeError("the model is missing")

    class RaisesWhenMade(Calm):
        def __init__(self):
            raise RuntimeError("no memory left")

    class NeedsMore(Calm):
        def __init__(self, colour):
            pass

    class TakesNoTask(Calm):
        def reset(self):
            pass

    class Leaves(Calm):
        def act(self, observation):
            raise SystemExit(0)

    class TakesAnything(Calm):
        def __init__(self, **options):
            self.options = options

    def decide(observation):
        return {}

    class ForAll:
        def reset(self, task, rngs):
            self.task = task
        def act(self, view):
            return self.changed(view.knobs)
        def changed(self, knobs):
            return knobs

    class TooHigh(ForAll):
        def changed(self, knobs):
            knobs[-1, 0] = 99999
            return knobs

    class NotANumber(ForAll):
        def changed(self, knobs):
            return knobs * np.nan

    class BetweenNumbers(ForAll):
        def changed(self, knobs):
            return knobs + 0.5

    class NoSuchTier(ForAll):
        def changed(self, knobs):
            knobs[:, 3] = 7
            return knobs

    class OneColumn(ForAll):
        def changed(self, knobs):
            return knobs[:, :1]

    class Nothing(ForAll):
        def changed(self, knobs):
            return None

    class RaisesForAll(ForAll):
        def changed(self, knobs):
            raise ValueError("no such plan")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "failing.py"
    path.write_text(textwrap.dedent(AGENTS), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("RaisesLater", r"RaisesLater, step 4: act\(\) raised ZeroDivisionError: .*\n.*failing.py, line 12, in act: "),
        ("RaisesAtReset", r"RaisesAtReset: reset\(\) raised RuntimeError: the model is missing\n.*line 16, in reset"),
        ("RaisesWhenMade", r"RaisesWhenMade: __init__\(\) raised RuntimeError: no memory left"),
        ("NeedsMore", r"NeedsMore: __init__\(\) raised TypeError: .* missing 1 required .*'colour'"),
        ("TakesNoTask", r"TakesNoTask: reset\(\) raised TypeError: .* takes 1 positional argument but 3"),
        ("Leaves", r"Leaves, step 1: act\(\) raised SystemExit: 0"),
        ("RaisesForAll", r"RaisesForAll, step 1: act\(\) raised ValueError: no such plan\n.*in act: .*\n.*in changed"),
    ],
)
def test_what_an_agent_raises_is_an_error_with_the_line_of_its_file(file: Path, name: str, reason: str) -> None:
    with pytest.raises(AgentError, match=reason):
        play(load_agent(f"{file}:{name}"), TASK, [1])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("TooHigh", "step 1, row 1: batch_cap must be a whole number from 1 to 512; got 99999"),
        ("NotANumber", "row 0: batch_cap must be a whole number from 1 to 512; got nan"),
        ("BetweenNumbers", "row 0: batch_cap must be a whole number from 1 to 512; got 32.5"),
        ("NoSuchTier", "row 0: quantization_tier must be FP16, INT8, INT4"),
        ("OneColumn", r"must return an array of numbers of shape \(2, 7\); got float64 of shape \(2, 1\)"),
        ("Nothing", r"must return an array of numbers of shape \(2, 7\); got None"),
    ],
)
def test_a_vectorised_agent_is_held_to_the_same_ranges(file: Path, name: str, reason: str) -> None:
    with pytest.raises(InvalidActionError, match=reason):
        play(load_agent(f"{file}:{name}"), TASK, [1, 2])


def test_a_vectorised_agent_may_return_what_it_sees(file: Path) -> None:
    own, shipped = (
        rewards(load_agent(name), "static_workload", [5], 20) for name in (f"{file}:ForAll", "default_knobs")
    )
    assert np.array_equal(own, shipped)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def agent(:", "its import raised SyntaxError: invalid syntax"),
        (
            "import no_such_package",
            "its import raised ModuleNotFoundError: No module named 'no_such_package'\n.*line 1",
        ),
        ("1 / 0", "its import raised ZeroDivisionError: division by zero\n.*line 1"),
        ("raise SystemExit(1)", "its import raised SystemExit: 1"),
    ],
)
def test_a_file_that_cannot_be_imported_is_an_error(tmp_path: Path, source: str, reason: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(source, encoding="utf-8")
    with pytest.raises(AgentError, match=reason):
        load_agent(f"{path}:Agent")


def test_the_command_prints_the_error_and_no_traceback(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--agent", f"{file}:RaisesLater", "--task", "static_workload", "--episodes", "1"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "failing.py, line 12, in act" in printed.err
    assert "llmserve_env" not in printed.err


def test_weights_are_refused_by_a_function_and_taken_by_a_class_that_takes_anything(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"means nothing to .*:decide, a function"):
        load_agent(f"{file}:decide", weights=Path("w"))
    assert len(play(load_agent(f"{file}:TakesAnything", weights=Path("w")), TASK, [1])) == 1


def test_a_change_that_is_held_stays_asked_for_as_over_the_wire() -> None:
    """Tiers dwell for five windows after a change; an agent need not ask again."""

    class AsksTwice:
        def reset(self, task: dict[str, object], seed: int) -> None:
            self.answers = [{"quantization_tier": "INT8"}, {"quantization_tier": "INT4"}]

        def act(self, observation: dict[str, object]) -> dict[str, str]:
            return self.answers.pop(0) if self.answers else {}

    played = play(SimpleAgents("asks_twice", AsksTwice), load_task("adversarial_multitenant"), [1])[0]
    tiers = played.trajectory.knobs[:, 3].tolist()
    assert tiers[:6] == [1.0, 1.0, 1.0, 1.0, 1.0, 2.0]
    wire = Episode("adversarial_multitenant")
    wire.reset(1)
    for action in ({"quantization_tier": "INT8"}, {"quantization_tier": "INT4"}, {}, {}, {}, {}):
        wire.step(wire.task.knobs_from_partial(wire.requested_before(wire.step_count), action))
    assert observe(wire)["metadata"]["knobs"]["quantization_tier"] == "INT4"
