"""Searches and capacity on a local Ray of two processes: the same results as on threads."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from llmserve_env.evaluation.parallel import Runner, Threads
from llmserve_env.evaluation.pieces import play_agent
from llmserve_env.planning.capacity.replicas import find_capacity
from llmserve_env.planning.tuning.halving import halve
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import Task
from tests.own_tasks import own_task, write_task

# Ray warns about itself in its own ways.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra [ray]: pip install '.[ray]'"),
    pytest.mark.filterwarnings("ignore"),
]


def findings(task: Task, runner: Runner) -> tuple[object, ...]:
    """Everything the commands compute on a runner, as plain figures."""
    tuned = halve(task, lambda figures: figures.reward, num_configurations=6, num_seeds=2, runner=runner)
    fleets = find_capacity(task, tiers=(0, 1), max_replicas=3, num_episodes=1, runner=runner)
    episodes = play_agent(task, "heuristic", [300_000, 300_001], runner)
    return (
        [(trial.knobs.tolist(), trial.figures) for trial in tuned.trials],
        [[(point.replicas, point.figures) for point in one.points] for one in fleets],
        [episode.trajectory.terms.tobytes() for episode in episodes],
    )


def test_ray_finds_what_threads_find(tmp_path: Path) -> None:
    from llmserve_env.evaluation.ray_runner import ray_runner

    task = load_task(write_task(tmp_path, own_task(steps=6)))
    with ray_runner(None, num_cpus=2) as runner:
        assert findings(task, runner) == findings(task, Threads(2))
