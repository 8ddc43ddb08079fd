"""Agents by name: where each is defined, and what it does in words."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from llmserve_env.agents.agent import Agent
from llmserve_env.errors import ConfigError


@dataclass(frozen=True, slots=True)
class AgentEntry:
    """An agent as lists of agents show it."""

    module: str
    """Module of this folder, which is loaded when the agent is made."""
    kind: str
    """Class in that module."""
    title: str
    """What people call it."""
    does: str
    """How it chooses the knobs."""
    sees: str
    """What it bases the choice on."""


AGENTS = {
    "random": AgentEntry(
        "uniform",
        "RandomAgent",
        title="Random",
        does="a random level of every knob in every step: `action_space.sample()` of the default Gymnasium id",
        sees="nothing",
    ),
    "default_knobs": AgentEntry(
        "constant",
        "DefaultKnobsAgent",
        title="Default knobs",
        does="the environment's defaults: batch cap 32, KV budget 1.0, no drafts, FP16, no split, no priorities",
        sees="nothing",
    ),
    "vllm_defaults": AgentEntry(
        "constant",
        "VllmDefaultsAgent",
        title="vLLM's defaults",
        does="what `vllm serve` starts with on the task's GPU: batch cap 256 or 1,024 (at most 512 here), the rest as "
        "`default_knobs`",
        sees="nothing",
    ),
    "tuned": AgentEntry(
        "constant",
        "TunedAgent",
        title="Tuned constant",
        does="the best constant configuration that a search found for the task (`llmserve tune`)",
        sees="nothing",
    ),
    "heuristic": AgentEntry(
        "heuristic",
        "HeuristicAgent",
        title="Heuristic",
        does="one rule per knob: the batch follows the queue, memory follows its use, precision follows the load",
        sees="the metrics on the wire",
    ),
    "ppo": AgentEntry(
        "ppo",
        "PpoAgent",
        title="PPO",
        does="a neural network trained on this task with PPO; it always takes the likeliest action",
        sees="the observation vector",
    ),
    "ppo_generalist": AgentEntry(
        "ppo",
        "GeneralistAgent",
        title="PPO generalist",
        does="one PPO policy for all tasks: it is also told SLOs, prices and fleet, and trained on random tasks too",
        sees="the observation vector",
    ),
    "planner": AgentEntry(
        "planner",
        "PlannerAgent",
        title="Planner",
        does="tries up to 19 plans over 8 windows on copies of the simulator, under two hypotheses about the traffic",
        sees="the simulator's present state and a forecast",
    ),
    "clairvoyant": AgentEntry(
        "planner",
        "ClairvoyantAgent",
        title="Clairvoyant",
        does="tries up to 26 plans over 12 windows under the traffic that will really come: "
        "a ceiling, not a competitor",
        sees="the future",
    ),
    "llm": AgentEntry(
        "llm",
        "LlmAgent",
        title="Language model",
        does="asks a language model through the official `openai` client",
        sees="the last windows as the wire carries them",
    ),
}

AGENT_NAMES = tuple(AGENTS)
FORMER_NAMES = {"static": "default_knobs"}
"""Names that commands and clients still accept."""
CEILINGS = ("clairvoyant",)
"""Agents that see the traffic to come: upper bounds, not competitors."""
_BLIND = ("random", "default_knobs", "vllm_defaults", "tuned")
BENCHMARKED = {
    "core": (*_BLIND, "heuristic", "ppo", "ppo_generalist", "planner", "clairvoyant"),
    "extended": (*_BLIND, "heuristic", "ppo_generalist", "planner", "clairvoyant"),
    "variants": (*_BLIND, "heuristic", "ppo_generalist", "planner", "clairvoyant"),
}
"""Agents of the published table of each suite, in its order. The generalist has never seen the extended suite."""


def current_name(name: str) -> str:
    """The name of an agent today, for a name that may be a former one."""
    return FORMER_NAMES.get(name, name)


def make_agent(name: str, **options: Any) -> Agent:
    """A new agent of this name; what it lacks (weights, a key) is an error, never another agent."""
    name = current_name(name)
    if name not in AGENTS:
        raise ConfigError(f"there is no agent {name!r}; known: {', '.join(AGENT_NAMES)}")
    entry = AGENTS[name]
    return cast(Agent, getattr(import_module(f"llmserve_env.agents.{entry.module}"), entry.kind)(**options))
