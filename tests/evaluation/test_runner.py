"""The parallel map: results in order, progress, errors, and the same findings on Ray."""

from __future__ import annotations

import threading
from importlib.util import find_spec
from pathlib import Path

import pytest

from llmserve_env.evaluation.play import play_agent
from llmserve_env.evaluation.runner import Runner, Threads
from llmserve_env.planning.answer.protocol import Protocol
from llmserve_env.planning.answer.search import find_answer
from llmserve_env.planning.tuning.halving import halve
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import Task
from tests.own_tasks import own_task, write_task


class Counts:
    """Progress as numbers."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.expected = self.finished = 0

    def stage(self, name: str) -> None:
        self.stages.append(name)

    def expect(self, num_pieces: int) -> None:
        self.expected += num_pieces

    def finish(self) -> None:
        self.finished += 1


@pytest.mark.parametrize("jobs", [1, 3])
def test_results_come_in_the_order_of_the_items(jobs: int) -> None:
    assert Threads(jobs).map(lambda n: n * n, range(20)) == [n * n for n in range(20)]


def test_progress_counts_every_piece() -> None:
    counts = Counts()
    runner = Threads(2, counts)
    runner.map(str, [1, 2, 3])
    runner.map(str, [4])
    assert (counts.expected, counts.finished) == (4, 4)


def test_an_error_of_a_piece_comes_through() -> None:
    counts = Counts()

    def work(n: int) -> int:
        if n == 1:
            raise ValueError("piece 1 failed")
        return n

    with pytest.raises(ValueError, match="piece 1 failed"):
        Threads(2, counts).map(work, range(4))
    assert counts.finished < counts.expected


def test_of_several_errors_that_of_the_first_piece_comes_through() -> None:
    later_has_begun = threading.Event()

    def work(n: int) -> int:
        if n == 0:
            later_has_begun.wait()
        later_has_begun.set()
        raise ValueError(f"piece {n} failed")

    with pytest.raises(ValueError, match="piece 0 failed"):
        Threads(2).map(work, range(6))


def findings(task: Task, runner: Runner) -> tuple[object, ...]:
    """Everything the commands compute on a runner, as plain figures."""
    tuned = halve(task, lambda outcome: outcome.reward, num_configurations=6, num_seeds=2, runner=runner)
    answer = find_answer(task, Protocol(num_search_seeds=2, num_fresh_seeds=2, max_replicas=3), runner)
    episodes = play_agent("heuristic", task, [300_000, 300_001], runner)
    return (
        [(trial.knobs.tolist(), trial.outcome) for trial in tuned.trials],
        answer.model_dump(),
        [(episode.seed, episode.totals(), episode.trajectory.terms.tobytes()) for episode in episodes],
    )


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra [ray]: pip install '.[ray]'")
@pytest.mark.filterwarnings("ignore")  # Ray warns about itself in its own ways.
def test_ray_finds_what_threads_find(tmp_path: Path) -> None:
    from llmserve_env.evaluation.ray_runner import ray_runner

    task = load_task(write_task(tmp_path, own_task(steps=6)))
    with ray_runner(None, num_cpus=2) as runner:
        assert findings(task, runner) == findings(task, Threads(2))
