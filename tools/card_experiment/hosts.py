"""The tuned constant and the trained policy in the simulator, beside slower and faster CPUs."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.markdown import markdown_table
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.seeds import REPORTED_SEEDS
from llmserve_env.evaluation.statistics import summarise
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import with_changes
from tools.card_experiment.engines import EnginePlan
from tools.card_experiment.policies import TRAINED, TUNED, policy_of

SCALES = (0.7, 0.85, 1.0, 1.2, 1.4)


def rewards_of(task: Task, plan: EnginePlan, seeds: Sequence[int] = REPORTED_SEEDS) -> dict[str, list[float]]:
    """Mean reward per seed of both, the constant being that of the recorded host."""
    agents = {name: policy_of(name, plan) for name in (TUNED, TRAINED)}
    found: dict[str, list[float]] = {}
    for scale in SCALES:
        beside = with_changes(task, deployment={"host_time_scale": scale})
        for name, agent in agents.items():
            played = play(agent, beside, seeds)
            found[f"{name} {scale:g}"] = [float(one.trajectory.terms["reward"].mean()) for one in played]
    return found


def as_markdown(task: Task, plan: EnginePlan) -> str:
    """A row per CPU: both rewards, and the gain on the same requests."""
    found, rows = rewards_of(task, plan), []
    for scale in SCALES:
        both = [found[f"{name} {scale:g}"] for name in (TUNED, TRAINED)]
        gain = [trained - tuned for tuned, trained in zip(*both, strict=True)]
        cells = [summarise(values) for values in (*both, gain)]
        rows.append([f"{scale:g}", *(f"{cell.mean:.3f} ({cell.ci95[0]:.3f} to {cell.ci95[1]:.3f})" for cell in cells)])
    return markdown_table(["host time", "tuned constant", "PPO", "gain of PPO"], rows)
