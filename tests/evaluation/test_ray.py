"""The same results on a local Ray of two processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="needs the extra [ray]: pip install '.[ray]'")
pytest.importorskip("stable_baselines3", reason="needs the extra [train]: pip install '.[train]'")


from llmserve_env.agents.ppo import PpoAgent
from llmserve_env.evaluation.evaluate import evaluate
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.ray_runner import ray_runner
from llmserve_env.tasks.catalog import load_task
from llmserve_env.training.rllib import train_on_ray
from llmserve_env.training.settings import TrainingRun, hyper_parameters

# Ray warns about itself in its own ways.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def test_evaluation_on_two_processes_gives_the_same_results() -> None:
    agents, tasks, seeds = ["default_knobs", "heuristic"], [load_task("static_workload")], [300_000, 300_001]
    with ray_runner(None, num_cpus=2) as runner:
        assert evaluate(agents, tasks, seeds, runner, size=1) == evaluate(agents, tasks, seeds)


def test_rllib_trains_a_policy_that_agents_can_play(tmp_path: Path) -> None:
    run = TrainingRun(
        name="static_workload",
        tasks=(load_task("static_workload"),),
        num_steps=1024,
        seed=0,
        hyper_parameters=hyper_parameters("static_workload", {"num_envs": 8, "n_steps": 64, "batch_size": 128}),
        weights=tmp_path / "weights",
        runs=tmp_path / "runs",
        command="python train.py --engine rllib",
        num_validation_episodes=2,
        num_validations=1,
    )
    trained = train_on_ray(run, num_env_runners=2, address=None)
    card = json.loads((trained.folder / "ppo.json").read_text(encoding="utf-8"))
    assert card["engine"] == "rllib"
    assert card["score"]["mean"] == round(trained.score, 4)
    play(PpoAgent(trained.folder), load_task("static_workload"), [1])
