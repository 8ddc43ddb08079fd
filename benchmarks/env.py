"""Environment speed: full steps with observation, reward and info, on one core.

    python -m benchmarks.env [--json]

Single: `LLMServeGymEnv.step` under steady knobs and under random ones, whole episodes. Vector: 64 environments of
`LLMServeVectorEnv`, one serial compiled call per step. CPU time of the process (`time.process_time`), the best of five
repeats, because other work on the machine only ever slows a run down. Grades at the end of an episode, which take one
to three milliseconds each, are switched off.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from llmserve_env.gym_envs.single import LLMServeGymEnv
from llmserve_env.gym_envs.vector import LLMServeVectorEnv
from llmserve_env.tasks.catalog import BENCHMARK

REPEATS = 5
NUM_ENVS = 64
STEADY_ACTION = np.array([5, 5, 0, 0, 0, 0])
"""Batch cap 128, KV budget 0.6, no speculation, FP16, no split, first come first served."""
BARS = {
    "static_workload": (25_000, 100_000),
    "bursty_workload": (10_000, 30_000),
    "adversarial_multitenant": (3_000, 6_000),
}


def best_rate(run: Callable[[], int]) -> float:
    """Steps per CPU second, the best of several repeats after a warm-up."""
    run()
    rates = []
    for _ in range(REPEATS):
        start = time.process_time()
        steps = run()
        rates.append(steps / (time.process_time() - start))
    return max(rates)


def single_rate(task: str, is_random: bool) -> float:
    """One Gymnasium environment, episode after episode, resets included."""
    env = LLMServeGymEnv(task, grades=False)
    env.action_space.seed(0)
    actions = [env.action_space.sample() if is_random else STEADY_ACTION for _ in range(env.task.steps)]

    def run() -> int:
        env.reset(seed=1)
        for action in actions:
            env.step(action)
        return len(actions)

    return best_rate(run)


def vector_rate(task: str) -> float:
    """Sixty-four environments in one call."""
    env = LLMServeVectorEnv(task, num_envs=NUM_ENVS, grades=False)
    actions = np.tile(STEADY_ACTION, (NUM_ENVS, 1))

    def run() -> int:
        env.reset(seed=1)
        for _ in range(env.task.steps):
            env.step(actions)
        return NUM_ENVS * env.task.steps

    return best_rate(run)


def measure() -> dict[str, dict[str, float]]:
    """Steps per CPU second by task."""
    return {
        task: {
            "single": single_rate(task, False),
            "single_random": single_rate(task, True),
            "vector": vector_rate(task),
        }
        for task in BENCHMARK
    }


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help='print {"steps_per_s": {task: {"single": …, "vector": …}}}')
    arguments = parser.parse_args()
    rates = measure()
    if arguments.json:
        print(json.dumps({"steps_per_s": rates, "method": (__doc__ or "").strip()}))
        return
    print(f"{'task':<26}{'single':>10}{'bar':>9}{'random':>10}{'vector 64':>12}{'bar':>9}   steps per CPU second")
    for task, rate in rates.items():
        single_bar, vector_bar = BARS[task]
        print(
            f"{task:<26}{rate['single']:>10,.0f}{single_bar:>9,}{rate['single_random']:>10,.0f}"
            f"{rate['vector']:>12,.0f}{vector_bar:>9,}"
        )


if __name__ == "__main__":
    main()
