"""Playing agents on the engine, and what their episodes came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llmserve_env.fleet.agents import FleetAgent, OracleAgent, make_agent
from llmserve_env.fleet.episode import FleetEpisode
from llmserve_env.fleet.statistics import Estimate, estimate
from llmserve_env.fleet.task import FleetTask
from llmserve_env.fleet.traffic import Traffic

S_PER_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class FleetResult:
    """One agent on one episode."""

    task: str
    agent: str
    series: str
    start_s: float
    seed: int
    usd_per_day: float
    """Income less bill less credits."""
    income_usd_per_day: float
    bill_usd_per_day: float
    credits_usd_per_day: float
    attainment: float
    judged: int
    gpu_hours_per_day: float
    tokens_per_day: float
    """Output tokens."""


def play(task: FleetTask, name: str, traffic: Traffic) -> FleetResult:
    """Play one episode to its end with the agent of this name."""
    return play_agent(task, name, make_agent(name), traffic)


def play_agent(task: FleetTask, name: str, agent: FleetAgent, traffic: Traffic) -> FleetResult:
    """Play one episode to its end."""
    if isinstance(agent, OracleAgent):
        agent.foresee(traffic)
    agent.reset(task)
    episode = FleetEpisode(task, traffic)
    observation, is_over, tokens = episode.reset(), False, 0.0
    while not is_over:
        observation, _, is_over, info = episode.step(agent.act(observation))
        tokens += info["outcome"].output_tokens
    account, days = episode.account, task.length_s / S_PER_DAY
    return FleetResult(
        task=task.versioned_id,
        agent=name,
        series=traffic.series,
        start_s=traffic.start_s,
        seed=traffic.seed,
        usd_per_day=account.net_usd / days,
        income_usd_per_day=account.income_usd / days,
        bill_usd_per_day=account.bill_usd / days,
        credits_usd_per_day=account.credits_usd / days,
        attainment=account.attainment,
        judged=account.judged,
        gpu_hours_per_day=episode.progress.gpu_hours / days,
        tokens_per_day=tokens / days,
    )


@dataclass(frozen=True, slots=True)
class Summary:
    """An agent on all episodes of a task."""

    dollars_per_day: Estimate
    dollars_per_million_tokens: float
    attainment: float
    gpu_hours_per_day: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON; `gpu_hours` are per day."""
        return {
            "dollars_per_day": {"mean": self.dollars_per_day.mean, "ci95": list(self.dollars_per_day.ci95)},
            "dollars_per_million_tokens": self.dollars_per_million_tokens,
            "attainment": self.attainment,
            "gpu_hours": self.gpu_hours_per_day,
        }


def summarise(results: Sequence[FleetResult]) -> Summary:
    """Means over episodes; attainment is that of all requests together."""
    judged = sum(result.judged for result in results)
    tokens = sum(result.tokens_per_day for result in results)
    return Summary(
        estimate([result.usd_per_day for result in results]),
        1e6 * sum(result.usd_per_day for result in results) / tokens if tokens else 0.0,
        sum(result.attainment * result.judged for result in results) / judged if judged else 1.0,
        sum(result.gpu_hours_per_day for result in results) / len(results),
    )
