"""The environment as MCP tools, which OpenEnv serves at `/mcp`: what an agent may do, and nothing about the simulation.

A session is made with `openenv/session/create`. Its tools look at the last window, describe the task and set knobs.
Tasks and seeds are chosen by whoever runs the episode, over a WebSocket that joins the session.
"""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Annotated, Any, Protocol

from fastmcp import FastMCP
from pydantic import Field

from llmserve_env.agents.llm_prompt import TOOL_NAME, system_prompt
from llmserve_env.agents.own.simple import task_facts
from llmserve_env.client import checked_action
from llmserve_env.engine.knobs import KNOBS
from llmserve_env.models import WIRE_TYPES, ServeAction, ServeObservation, ServeState
from llmserve_env.server.tasks import known_task


class Steppable(Protocol):
    """What the tools use of an environment."""

    @property
    def state(self) -> ServeState:
        """Where the episode stands; no task before the first reset."""

    def reset(self) -> ServeObservation:
        """Start an episode of the first task."""

    def step(self, action: ServeAction) -> ServeObservation:
        """Serve one window; knobs that the action leaves out keep their values."""


class McpTools:
    """The tools of one session."""

    def __init__(self, environment: Steppable) -> None:
        self._environment = environment
        self._last: ServeObservation | None = None

    def observe(self) -> dict[str, Any]:
        """The last window that these tools have served: metrics, reward and knobs in force."""
        if self._last is None:
            if self._environment.state.task_id is None:
                self._last = self._environment.reset()
            else:
                return {"step_index": self._environment.state.step_count, "note": f"call {TOOL_NAME} to see a window"}
        return _fields(self._last)

    def describe_task(self) -> dict[str, Any]:
        """The task: SLOs, fleet, knobs with their ranges, reward weights, and the same in words."""
        if self._environment.state.task_id is None:
            self._last = self._environment.reset()
        task = known_task(str(self._environment.state.task_id))
        return {**task_facts(task), "text": system_prompt(task)}

    def set_knobs(self, **changes: Any) -> dict[str, Any]:
        """Change some knobs and serve one window. Knobs left out keep their values. Returns the window."""
        given = {name: value for name, value in changes.items() if value is not None}
        self._last = self._environment.step(checked_action(given))
        return _fields(self._last)


def _fields(observation: ServeObservation) -> dict[str, Any]:
    fields: dict[str, Any] = observation.model_dump()
    return fields


def mcp_server(environment: Steppable) -> FastMCP[Any]:
    """The tools of an environment as an MCP server; the arguments of `set_knobs` follow the table of knobs."""
    tools, server = McpTools(environment), FastMCP("llmserve_env")

    def set_knobs(**changes: Any) -> dict[str, Any]:
        return tools.set_knobs(**changes)

    fields = {
        knob.name: Annotated[WIRE_TYPES[knob.kind] | None, Field(description=f"{knob.meaning}: {knob.allowed}")]
        for knob in KNOBS
    }
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in fields.items()
    ]
    set_knobs.__doc__ = McpTools.set_knobs.__doc__
    set_knobs.__annotations__ = {**fields, "return": dict[str, Any]}
    set_knobs.__signature__ = Signature(parameters, return_annotation=dict[str, Any])  # type: ignore[attr-defined]
    for tool in (tools.observe, tools.describe_task, set_knobs):
        server.tool(tool)
    return server
