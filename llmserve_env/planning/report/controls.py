"""Ways of running the recommended fleet: constants, policies that can be deployed, and a planner as a bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from llmserve_env.agents.constant import vllm_default_knobs
from llmserve_env.agents.registry import make_agent
from llmserve_env.arrays import Array
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.errors import VersionMismatchError, WeightsNotFoundError
from llmserve_env.evaluation.play import play_agent
from llmserve_env.evaluation.runner import Runner
from llmserve_env.planning.answer.answer import Followed
from llmserve_env.planning.answer.objectives import Objective
from llmserve_env.planning.answer.playing import followed, play_followed
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import on_fleet

VLLM, RECOMMENDED = "vLLM's defaults", "recommended"
NUM_BOUND_SEEDS = 2
"""Seeds for the planner, which tries hundreds of futures per step."""
Kind = Literal["constant", "deployable", "bound"]


@dataclass(frozen=True, slots=True)
class Control:
    """One way of running the fleet, on fresh seeds."""

    name: str
    kind: Kind
    found: Followed
    episodes: tuple[PlayedEpisode, ...]


@dataclass(frozen=True, slots=True)
class Controls:
    """All controls, and what a policy that adapts adds to the constant."""

    all: tuple[Control, ...]
    adaptive: Control
    """The better of the deployable policies, which the page follows."""
    reason: str
    """Which policies there are, and why the page follows this one."""
    smaller: Followed | None
    """The same policy on a fleet with one replica less, on the traffic where it decides whether that is enough; None
    where there is only one replica."""
    is_smaller_enough: bool
    """Whether it would be accepted and verified there as a recommended fleet is."""

    def named(self, name: str) -> Control:
        """The control of that name."""
        return next(control for control in self.all if control.name == name)

    @property
    def recommended(self) -> Control:
        return self.named(RECOMMENDED)

    @property
    def saved_usd_per_hour(self) -> float:
        """What the policy saves: a replica, where the smaller fleet would be recommended under it."""
        if self.smaller is None or not self.is_smaller_enough:
            return 0.0
        return self.recommended.found.usd_per_hour - self.smaller.usd_per_hour


@dataclass(frozen=True, slots=True)
class Setting:
    """What all controls are measured on."""

    fleet: Task
    knobs: Array
    seeds: tuple[int, ...]
    search_seeds: tuple[int, ...]
    """Seeds of the traffic on which fleets are accepted."""
    objectives: tuple[Objective, ...]
    confidence: float
    runner: Runner

    def measured(self, name: str, kind: Kind, episodes: Sequence[PlayedEpisode], knobs: Array | None = None) -> Control:
        """A control from its episodes."""
        row = self.knobs if knobs is None else knobs
        found = followed(self.fleet, row, episodes, self.objectives, self.confidence)
        return Control(name, kind, found, tuple(episodes))

    def constant(self, name: str, knobs: Array) -> Control:
        """One configuration throughout."""
        return self.measured(name, "constant", play_followed(self.fleet, knobs, self.seeds, self.runner), knobs)

    def agent(self, name: str, kind: Kind, seeds: Sequence[int]) -> Control:
        """An agent that adapts."""
        return self.measured(name, kind, play_agent(name, self.fleet, seeds, self.runner))


def measure_controls(setting: Setting, train_command: str) -> Controls:
    """Play every control on the recommended fleet."""
    setting.runner.progress.stage("policies")
    names, reason = deployable(setting.fleet, train_command)
    policies = [setting.agent(name, "deployable", setting.seeds) for name in names]
    adaptive = max(policies, key=lambda policy: policy.found.kept_share)
    if len(policies) > 1:
        reason += f" The page follows `{adaptive.name}`, which keeps the promises better here."
    bound = play_agent(
        "planner", setting.fleet, setting.seeds[:NUM_BOUND_SEEDS], setting.runner, constant=setting.knobs
    )
    everyone = (
        setting.constant(VLLM, vllm_default_knobs(setting.fleet)),
        setting.constant(RECOMMENDED, setting.knobs),
        *policies,
        setting.measured("planner", "bound", bound),
    )
    return Controls(everyone, adaptive, reason, *on_smaller_fleet(setting, adaptive.name))


def deployable(task: Task, train_command: str) -> tuple[tuple[str, ...], str]:
    """Policies that can be deployed on this task, and where they come from."""
    for name, why in (
        ("ppo", "trained on this task"),
        ("ppo_generalist", f"shipped; `{train_command}` trains one here"),
    ):
        try:
            make_agent(name).reset(task, [stream(0, POLICY_STREAM)])
        except (WeightsNotFoundError, VersionMismatchError):
            continue
        return (name, "heuristic"), f"Two policies can be deployed here: `{name}` ({why}) and the rules of `heuristic`."
    return ("heuristic",), f"No trained policy fits (`{train_command}` makes one), so the rules of `heuristic` adapt."


def on_smaller_fleet(setting: Setting, agent: str) -> tuple[Followed | None, bool]:
    """The agent on a fleet with one replica less, and whether that fleet would be recommended.

    It must pass what the recommended fleet passed; otherwise luck on the fresh seeds would look like a saved replica.
    """
    replicas = setting.fleet.deployment.replicas
    if replicas == 1:
        return None, False
    smaller = on_fleet(setting.fleet, replicas - 1)

    def on(seeds: tuple[int, ...]) -> Followed:
        episodes = play_agent(agent, smaller, seeds, setting.runner)
        return followed(smaller, setting.knobs, episodes, setting.objectives, setting.confidence)

    searched = on(setting.search_seeds)
    if not searched.is_sure:
        return searched, False
    fresh = on(setting.seeds)
    return fresh, fresh.is_kept
