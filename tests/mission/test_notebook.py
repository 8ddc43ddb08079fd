"""The plan's notebook, typed as it stands against a running server, and the demo that is shipped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmserve_env import LLMServeEnv
from tests.mission.asked import asked
from tests.mission.plan_notebook import CELLS
from tests.server.running import RunningServer

ROOT = Path(__file__).resolve().parents[2]
NEEDS_TRAINING = ("train PPO", "the reward curve against the baseline")
STEPS = 1000


@pytest.fixture
def typed(running: RunningServer) -> Iterator[dict[str, Any]]:
    """The names of a notebook that is connected to a server."""
    names: dict[str, Any] = {"URL": running.url, "STEPS": STEPS, "__name__": "notebook"}
    yield names
    for name in ("env", "monitored"):
        session = getattr(getattr(names.get(name), "unwrapped", None), "http", None)
        if session is not None:
            session.close()


def type_cells(names: dict[str, Any], titles: list[str]) -> None:
    for title in titles:
        exec(compile(CELLS[title], f"cell {title!r}", "exec"), names)


@asked(
    "Notebook (plan): install, connect, tasks, baseline, manual episode, ten smart steps, Gym wrapper",
    "`tests/mission/plan_notebook.py`: these cells in the plan's names, run against a server in CI; "
    "`notebooks/InferenceGym_Demo.ipynb` is the notebook to read",
    "the plan's cells are kept as facts, not as text, so they are written again from those facts",
)
@pytest.mark.filterwarnings("ignore")
def test_the_plans_cells_run_against_a_server(typed: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    type_cells(typed, [title for title in CELLS if title not in NEEDS_TRAINING])
    assert len(typed["episode_log"]) == 200
    assert 0.0 <= typed["grade"]["plan"]["score"] <= 1.0
    assert "Static Uniform" in capsys.readouterr().out


@asked(
    "PPO training of 50k steps, reward curve against the baseline",
    "the same cells with 1,000 steps in CI; 50,000 steps over HTTP take minutes, in process seconds (the demo)",
)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_plans_training_cells_run_against_a_server(typed: dict[str, Any]) -> None:
    pytest.importorskip("stable_baselines3", reason="needs the extra [train]: pip install '.[train]'")
    type_cells(typed, list(CELLS))
    assert len(typed["rewards"]) == STEPS // 200
    assert len(typed["curve"]) == 2


@asked("Client: `from llmserve_env import LLMServeEnv`; `env = LLMServeEnv.from_url(url)`", "as written")
def test_the_client_plays_as_written(running: RunningServer) -> None:
    env, action_dict = LLMServeEnv.from_url(running.url), {"batch_cap": 96}
    observation = env.reset(task_id="static_workload", seed=42)
    while not observation.done:
        observation, _reward, _done, _info = env.step(action_dict)
    assert 0.0 <= env.grade().score <= 1.0
    env.close()
