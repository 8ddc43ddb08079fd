"""Write episodes of the shipped agents as a Minari dataset for offline reinforcement learning.

    python -m tools.minari_dataset --task bursty_workload --agent random heuristic tuned ppo --episodes 20

The dataset is called `llmserve/<task>/<agents>-v<task version>` and lies in MINARI_DATASETS_PATH, or in Minari's own
folder. Observations and actions are those of the task's default Gymnasium id: an agent's knobs are rounded to the
nearest levels, and the episode is what those levels earn. Episodes use training seeds, so nothing is learned from
seeds that tables report. Needs `pip install 'minari[hdf5]'`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from llmserve_env.agents.agent import Agent, BranchingAgent, view_of
from llmserve_env.agents.own.loading import load_agent
from llmserve_env.arrays import Array
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.gym_envs.single import LLMServeGymEnv
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.catalog import load_task

DEFAULT_AGENTS = ("random", "heuristic", "tuned", "ppo")


def nearest_levels(env: LLMServeGymEnv, knobs: Array) -> Array:
    """The discrete action closest to a row of the knob matrix."""
    return np.array([int(np.argmin(np.abs(np.array(k.levels) - knobs[k.column]))) for k in env.task.action_knobs])


@dataclass(slots=True)
class Recorded:
    """One episode through the Gymnasium environment."""

    seed: int
    observations: list[Array]
    actions: list[Array]
    rewards: list[float]
    score: float


def recorded(env: LLMServeGymEnv, agent: Agent, seed: int) -> Recorded:
    """Play an agent on one seed."""
    observation, _ = env.reset(seed=seed)
    found = Recorded(seed, [observation], [], [], 0.0)
    agent.reset(env.task, [stream(seed, POLICY_STREAM)])
    if isinstance(agent, BranchingAgent):
        agent.attach(env.episode.batch)
    is_over = False
    while not is_over:
        knobs = agent.act(view_of(env.episode.batch, env.episode.step_count))[0]
        action = nearest_levels(env, knobs)
        observation, reward, _, is_over, info = env.step(action)
        found.observations.append(observation)
        found.actions.append(action)
        found.rewards.append(reward)
        found.score = info.get("score", 0.0)
    return found


def write_dataset(task_id: str, agents: Sequence[str], episodes: int) -> Any:
    """Play and write; the dataset."""
    from minari import create_dataset_from_buffers
    from minari.data_collector import EpisodeBuffer

    task = load_task(task_id)
    env, seeds = LLMServeGymEnv(task), SEED_RANGES["training"][:episodes]
    played = {name: [recorded(env, load_agent(name), seed) for seed in seeds] for name in agents}
    said = ", ".join(f"{name} {np.mean([one.score for one in found]):.3f}" for name, found in played.items())
    buffers = [
        EpisodeBuffer(
            id=index,
            seed=one.seed,
            observations=np.array(one.observations),
            actions=np.array(one.actions),
            rewards=one.rewards,
            terminations=[False] * task.steps,
            truncations=[*([False] * (task.steps - 1)), True],
        )
        for index, one in enumerate(one for found in played.values() for one in found)
    ]
    return create_dataset_from_buffers(
        dataset_id=f"llmserve/{task_id}/{'-'.join(agents)}-v{task.version}",
        buffer=buffers,
        env=gym.make(task.gym_id),
        algorithm_name=", ".join(agents),
        description=f"{episodes} episodes of each agent on {task.gym_id}, training seeds from {seeds.start}; "
        f"mean scores: {said}",
        author="The LLMServeEnv maintainers",
        requirements=["openenv-llmserve-env"],
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Write the dataset and say what is in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="bursty_workload")
    parser.add_argument("--agent", nargs="+", default=list(DEFAULT_AGENTS), metavar="AGENT")
    parser.add_argument("--episodes", type=int, default=20, metavar="N", help="per agent (default: 20)")
    args = parser.parse_args(argv)
    try:
        dataset = write_dataset(args.task, args.agent, args.episodes)
    except ModuleNotFoundError as error:
        parser.error(f"a dataset needs {error.name}: pip install 'minari[hdf5]'")
    print(f"{dataset.spec.dataset_id}: {dataset.total_episodes} episodes, {dataset.total_steps} steps")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
