"""Training end to end on tiny budgets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from llmserve_env.agents.policy_format import PolicyFormat
from llmserve_env.agents.ppo import PpoAgent
from llmserve_env.agents.registry import make_agent
from llmserve_env.env.features import features_of
from llmserve_env.evaluation.play import play
from llmserve_env.tasks.catalog import load_task
from llmserve_env.training.checkpoint import load_checkpoint, policy_layers, save_checkpoint
from llmserve_env.training.ppo import make_model, train
from llmserve_env.training.results import policy_network
from llmserve_env.training.settings import TrainingRun, hyper_parameters
from llmserve_env.training.vec_env import ServingVecEnv

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def run_in(folder: Path, **changes: object) -> TrainingRun:
    run = TrainingRun(
        name="static_workload",
        tasks=(load_task("static_workload"),),
        num_steps=2048,
        seed=0,
        hyper_parameters=hyper_parameters("static_workload", {"num_envs": 8, "n_steps": 64, "batch_size": 128}),
        weights=folder / "weights",
        runs=folder / "runs",
        command="python train.py",
        num_validation_episodes=2,
        num_validations=2,
    )
    return replace(run, **changes)  # type: ignore[arg-type]


def test_the_policy_without_torch_is_the_policy_that_was_trained(tmp_path: Path) -> None:
    task = load_task("static_workload")
    model = make_model(run_in(tmp_path), ServingVecEnv([task], 8, seed=0))
    features = np.random.default_rng(0).normal(size=(200, len(features_of(task.action_knobs)))).astype(np.float32)
    greedy, _ = model.predict(features, deterministic=True)
    none_in_force = np.full((200, len(task.action_knobs)), np.nan)
    policy = policy_network(policy_layers(model), {"levels": PolicyFormat().knob_levels(task)})
    assert np.array_equal(policy.levels(features, none_in_force), greedy)


def test_training_writes_weights_a_card_and_a_curve(tmp_path: Path) -> None:
    trained = train(run_in(tmp_path))
    folder = tmp_path / "weights" / "static_workload"
    assert trained.folder == folder
    assert {path.name for path in folder.iterdir()} == {"ppo.safetensors", "ppo.json", "curve.png"}
    card = json.loads((folder / "ppo.json").read_text(encoding="utf-8"))
    assert card["score"]["mean"] == round(trained.score, 4)
    assert (card["seed"], card["steps"], card["command"]) == (0, 2048, "python train.py")
    assert len(card["curve"]["validation_steps"]) >= 2
    assert trained.times.environment_s + trained.times.validation_s < trained.times.total_s
    play(PpoAgent(folder), load_task("static_workload"), [1])


def test_the_same_seed_trains_the_same_policy(tmp_path: Path) -> None:
    one, other = (train(run_in(tmp_path / name)) for name in "ab")
    assert (one.folder / "ppo.safetensors").read_bytes() == (other.folder / "ppo.safetensors").read_bytes()


def test_a_checkpoint_restores_networks_and_optimizer(tmp_path: Path) -> None:
    env = ServingVecEnv([load_task("static_workload")], 8, seed=0)
    model = make_model(run_in(tmp_path), env)
    model.learn(1024)
    save_checkpoint(model, {"steps": 1024}, tmp_path)
    fresh = make_model(run_in(tmp_path, seed=9), env)
    assert load_checkpoint(fresh, tmp_path) == {"steps": 1024}
    for name, value in model.policy.state_dict().items():
        assert torch.equal(value, fresh.policy.state_dict()[name])
    old, new = (m.policy.optimizer.state_dict()["state"] for m in (model, fresh))
    assert all(torch.equal(old[i]["exp_avg"], new[i]["exp_avg"]) for i in old)


def test_a_resumed_run_goes_on_with_the_curve(tmp_path: Path) -> None:
    train(run_in(tmp_path))
    train(run_in(tmp_path, num_steps=4096, resume=True))
    card = json.loads((tmp_path / "weights" / "static_workload" / "ppo.json").read_text(encoding="utf-8"))
    steps = card["curve"]["validation_steps"]
    assert steps == sorted(steps)
    assert steps[0] <= 2048 < 4096 <= steps[-1]


def test_one_policy_trains_on_several_tasks(tmp_path: Path) -> None:
    tasks = (load_task("static_workload"), load_task("bursty_workload"))
    trained = train(run_in(tmp_path, name="generalist", tasks=tasks, num_validation_episodes=1))
    for task in tasks:
        assert play(PpoAgent(trained.folder), task, [1])[0].step_count == task.steps


def test_ppo_learns_more_than_chance(tmp_path: Path) -> None:
    trained = train(run_in(tmp_path, num_steps=20_000))
    task, seeds = load_task("static_workload"), [300_000, 300_001]
    learned, chance = (
        np.mean([episode.trajectory.terms["reward"].sum() for episode in play(agent, task, seeds)])
        for agent in (PpoAgent(trained.folder), make_agent("random"))
    )
    assert learned > chance
