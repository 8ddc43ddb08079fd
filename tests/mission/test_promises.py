"""What the environment is for: an OpenEnv environment, a reason to learn, and one's own traces."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import numpy as np
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation

from llmserve_env.agents.registry import make_agent
from llmserve_env.cli.main import main
from llmserve_env.evaluation.play import play
from llmserve_env.models import ServeAction, ServeObservation
from llmserve_env.server.llmserve_environment import LLMServeEnvironment
from llmserve_env.tasks.catalog import load_task, read_task
from tests.mission.asked import asked
from tests.mission.load_all import rows

ROOT = Path(__file__).resolve().parents[2]


@asked("An OpenEnv-compliant RL environment for learning LLM inference serving policies", "OpenEnv's base classes")
def test_the_environment_is_one_of_openenvs() -> None:
    assert issubclass(LLMServeEnvironment, Environment)


@asked("CPU-simulated, deterministic under fixed seeds", "a compiled simulator on an integer clock; no torch, no GPU")
def test_one_seed_gives_the_same_episode_twice() -> None:
    task, agent = load_task(3), make_agent("heuristic")
    first, second = play(agent, task, [5])[0], play(agent, task, [5])[0]
    assert first.trajectory.metrics.tobytes() == second.trajectory.metrics.tobytes()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert not any(need.startswith(("torch", "triton")) for need in project["dependencies"])


@asked(
    "A hand-coded rule should not be optimal (non-stationary load, interdependent resources)",
    "docs/tasks.md measures how much adapting gains on each task, compared with the best constant and the best rule",
)
def test_the_load_is_not_stationary_and_the_defaults_are_not_best() -> None:
    for number in (2, 3):
        task = load_task(number)
        rates = play(make_agent("default_knobs"), task, [1])[0].trajectory.metrics["window_rate_rps"]
        assert rates.max() > 2 * np.median(rates)
    text = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
    assert "Gain of adapting" in text


@asked("Typed Action/Observation and reward-bearing trajectories", "pydantic types on OpenEnv's own bases")
def test_actions_and_observations_are_typed_and_carry_rewards() -> None:
    assert issubclass(ServeAction, Action) and issubclass(ServeObservation, Observation)
    assert {"reward", "done"} <= set(ServeObservation.model_fields)


@asked(
    '"Any company can drop in its own trace data and train an agent',
    "`llmserve trace import`, a task file, `train.py`: docs/own_workload.md",
)
def test_a_request_log_becomes_a_task_that_can_be_played(tmp_path: Path) -> None:
    example = ROOT / "examples" / "own_workload"
    shutil.copy(example / "my_service.yaml", tmp_path)
    log = str(example / "sample_log.csv")
    assert main(["trace", "import", log, "--format", "csv", "-o", str(tmp_path / "requests.parquet")]) == 0
    task = read_task(tmp_path / "my_service.yaml")
    rewards = play(make_agent("heuristic"), task, [1])[0].trajectory.terms["reward"]
    assert np.isfinite(rewards).all()


def mission_lines(text: str) -> list[str]:
    """Lines that ask for something: neither headings nor rulers nor the heads of tables."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not re.match(r"#|\|-|\| README field", line)]


def test_every_line_of_the_mission_has_a_row_and_every_row_quotes_one() -> None:
    document = ROOT.parent / "shared" / "MISSION.md"
    if not document.is_file():
        return
    lines = mission_lines(document.read_text(encoding="utf-8"))
    text = "\n".join(lines)
    found = rows()
    assert [row.asked for row in found if row.asked not in text] == []
    assert [line for line in lines if not any(row.asked in line for row in found)] == []
