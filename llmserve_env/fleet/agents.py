"""Agents of a fleet by name, or one's own by `file.py:decide`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from llmserve_env.errors import ConfigError, InvalidActionError, WeightsNotFoundError
from llmserve_env.fleet.decision import FleetDecision
from llmserve_env.fleet.fluid.calibration import load_calibration
from llmserve_env.fleet.fluid.need import ahead, needs
from llmserve_env.fleet.fluid.worlds import Worlds
from llmserve_env.fleet.learned import LearnedAgent, load_corrections
from llmserve_env.fleet.observation import Observation
from llmserve_env.fleet.rules.oracle import Oracle
from llmserve_env.fleet.rules.registry import SCALERS
from llmserve_env.fleet.rules.rule import RuleAgent, RuleBatch
from llmserve_env.fleet.task import FleetTask
from llmserve_env.fleet.traffic import Traffic
from llmserve_env.fleet.tuned import Settings, tuned_settings
from llmserve_env.fleet.tuning import FUTURE_WINDOWS
from llmserve_env.own_code import own_code

LEARNED = "ppo"
ORACLE = "oracle"
AGENT_NAMES = (LEARNED, *SCALERS)


class FleetAgent(Protocol):
    """Decides for one episode at a time."""

    def reset(self, task: FleetTask) -> None:
        """Begin an episode."""

    def act(self, observation: Observation) -> FleetDecision:
        """The decision for the next window."""


class OracleAgent:
    """The oracle on one episode, whose traffic it is shown beforehand."""

    def __init__(self, settings: Settings | None = None) -> None:
        """With these settings, or with those that ship for the task that it plays."""
        self._settings = settings
        self._worlds: Worlds | None = None

    def foresee(self, traffic: Traffic) -> None:
        """Show the traffic of the next episode."""
        self._worlds = Worlds.of([traffic])

    def reset(self, task: FleetTask) -> None:
        """Begin an episode."""
        if self._worlds is None:
            raise RuntimeError("call foresee(traffic) before reset(task)")
        self._batch = RuleBatch(Oracle, task, [self._settings or tuned_settings(task, ORACLE)])
        self._needs = needs(self._worlds, load_calibration(task).flow)
        self._window = self._worlds.lead_windows

    def act(self, observation: Observation) -> FleetDecision:
        """The decision for the next window."""
        row = np.zeros(1, np.int64)
        futures = {role: ahead(need, row, self._window, FUTURE_WINDOWS) for role, need in self._needs.items()}
        self._window += 1
        return self._batch.decide(observation.vector[None, :], futures).one()


class TunedAgent:
    """A rule with the settings that ship for the task that it plays."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rule: RuleAgent | None = None

    def reset(self, task: FleetTask) -> None:
        """Begin an episode."""
        self._rule = RuleAgent(SCALERS[self._name], tuned_settings(task, self._name))
        self._rule.reset(task)

    def act(self, observation: Observation) -> FleetDecision:
        """The decision for the next window."""
        if self._rule is None:
            raise RuntimeError("call reset(task) before act(observation)")
        return self._rule.act(observation)


class OwnAgent:
    """A user's object with `reset` and `act`, or a function; what it raises or returns is checked."""

    def __init__(self, where: str, agent: Any) -> None:
        self._where, self._agent = where, agent

    def reset(self, task: FleetTask) -> None:
        """Begin an episode; a function keeps nothing between decisions."""
        if hasattr(self._agent, "reset"):
            with own_code(f"{self._where}: reset()"):
                self._agent.reset(task)

    def act(self, observation: Observation) -> FleetDecision:
        """The user's decision."""
        with own_code(self._where):
            found = self._agent.act(observation) if hasattr(self._agent, "act") else self._agent(observation)
        if not isinstance(found, FleetDecision):
            raise InvalidActionError(
                f"{self._where} must return a FleetDecision, such as FleetDecision(serving=(8,), asleep=(0,)); "
                f"got {found!r:.80}"
            )
        return found


def make_agent(name: str) -> FleetAgent:
    """A new agent: one of the package by its name, or `file.py:function` (or a class with reset and act)."""
    if ":" in name:
        return _own(name)
    if name == LEARNED:
        return LearnedAgent()
    if name == ORACLE:
        return OracleAgent()
    if name not in SCALERS:
        raise ConfigError(
            f"there is no fleet agent {name!r}; known: {', '.join(AGENT_NAMES)}; or your own: file.py:decide"
        )
    return TunedAgent(name)


def why_not(name: str, task: FleetTask) -> str | None:
    """What an agent lacks to play a task, or None if it can play."""
    if ":" in name:
        return None
    try:
        if name == LEARNED:
            load_corrections(task)
        else:
            tuned_settings(task, name)
        if name == ORACLE:
            load_calibration(task)
    except (ConfigError, WeightsNotFoundError) as error:
        return str(error)
    return None


def _own(name: str) -> FleetAgent:
    place, _, attribute = name.rpartition(":")
    path = Path(place)
    if path.suffix != ".py" or not path.is_file():
        raise ConfigError(f"there is no Python file {place!r}; name your own policy as file.py:decide")
    spec = importlib.util.spec_from_file_location(f"llmserve_own_fleet_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    with own_code(f"{path}: its import"):
        spec.loader.exec_module(module)
    found = getattr(module, attribute, None)
    if found is None or not callable(found):
        raise ConfigError(f"{path} defines no function or class {attribute!r}")
    if not isinstance(found, type):
        return OwnAgent(name, found)
    missing = [method for method in ("reset", "act") if not callable(getattr(found, method, None))]
    if missing:
        raise ConfigError(f"{name} has no {' and no '.join(missing)}(); an agent has reset(task) and act(observation)")
    with own_code(f"{name}: __init__()"):
        return OwnAgent(name, found())
