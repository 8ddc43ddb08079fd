"""Time a training run by part: `python -m benchmarks.training [--steps 120000]`; needs the training extra."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from benchmarks.markdown import markdown_table
from llmserve_env.tasks.catalog import BENCHMARK, load_task
from llmserve_env.training.ppo import train
from llmserve_env.training.results import Trained
from llmserve_env.training.settings import TrainingRun, hyper_parameters


def trained(task: str, steps: int, folder: Path) -> Trained:
    """Train a policy like the shipped one in a separate folder."""
    return train(
        TrainingRun(
            name=task,
            tasks=(load_task(task),),
            num_steps=steps,
            seed=0,
            hyper_parameters=hyper_parameters(task, {}),
            weights=folder / "weights",
            runs=folder / "runs",
            command=f"python train.py --task {task} --steps {steps} --seed 0",
        )
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120_000)
    steps = parser.parse_args().steps
    rows = []
    for task in BENCHMARK:
        with tempfile.TemporaryDirectory() as folder:
            found = trained(task, steps, Path(folder))
        times = found.times
        took = [f"{times.total_s:.0f}", f"{times.cpu_s:.0f}", f"{times.environment_share:.0%} of training"]
        rows.append([f"`{task}`", *took, f"{found.score:.3f}", f"{os.getloadavg()[0]:.1f}"])
    columns = ["all, s", "CPU, s", "environment", "validation score", "load average after"]
    print(markdown_table([f"task, {steps:,} steps", *columns], rows))


if __name__ == "__main__":
    main()
