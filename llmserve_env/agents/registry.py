"""Agents by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from llmserve_env.agents.agent import Agent
from llmserve_env.errors import ConfigError

_AGENTS = {
    "random": ("uniform", "RandomAgent"),
    "static": ("constant", "StaticAgent"),
    "tuned": ("constant", "TunedAgent"),
    "heuristic": ("heuristic", "HeuristicAgent"),
    "ppo": ("ppo", "PpoAgent"),
    "ppo_generalist": ("ppo", "GeneralistAgent"),
    "planner": ("planner", "PlannerAgent"),
    "clairvoyant": ("planner", "ClairvoyantAgent"),
    "llm": ("llm", "LlmAgent"),
}
"""Name -> module of this folder and class; a module is loaded when its agent is made."""

AGENT_NAMES = tuple(_AGENTS)
CEILINGS = ("clairvoyant",)
"""Agents that see the traffic to come: upper bounds, not competitors."""
BENCHMARKED = {
    "core": ("random", "static", "tuned", "heuristic", "ppo", "ppo_generalist", "planner", "clairvoyant"),
    "extended": ("random", "static", "tuned", "heuristic", "planner", "clairvoyant"),
}
"""Agents of the published table of each suite, in its order. No policy is shipped for the extended suite."""


def make_agent(name: str, **options: Any) -> Agent:
    """A new agent of this name; what it lacks (weights, a key) is an error, never another agent."""
    if name not in _AGENTS:
        raise ConfigError(f"there is no agent {name!r}; known: {', '.join(AGENT_NAMES)}")
    module, kind = _AGENTS[name]
    return cast(Agent, getattr(import_module(f"llmserve_env.agents.{module}"), kind)(**options))
