"""MCP tools at /mcp: what they are, that they play the session's episode, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from llmserve_env.env.episode import Episode
from llmserve_env.env.observation import observe
from tests.server.running import RunningServer


def ask(url: str, method: str, **params: Any) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer: dict[str, Any] = httpx.post(f"{url}/mcp", json=body, timeout=60.0).json()
    return answer


def test_an_agent_plays_an_episode_through_tools(tmp_path: Path) -> None:
    with RunningServer(f"sqlite:///{tmp_path / 'sessions.db'}") as server:
        listed = {tool["name"]: tool for tool in ask(server.url, "tools/list")["result"]["tools"]}
        assert set(listed) == {"observe", "describe_task", "set_knobs"}
        assert "batch_cap" in listed["set_knobs"]["inputSchema"]["properties"]
        session = ask(server.url, "openenv/session/create")["result"]["session_id"]

        def call(name: str, **arguments: Any) -> dict[str, Any]:
            return ask(server.url, "tools/call", session_id=session, name=name, arguments=arguments)

        assert call("describe_task")["result"]["id"] == "static_workload"
        assert call("observe")["result"]["step_index"] == 0
        assert call("set_knobs", batch_cap=96)["result"]["metadata"]["knobs"]["batch_cap"] == 96
        seen = call("set_knobs", kv_budget_fraction=0.4)["result"]
        assert seen["step_index"] == 2
        assert "batch_cap must be" in call("set_knobs", batch_cap=0)["error"]["message"]
        assert call("observe")["result"] == seen


def test_windows_served_by_tools_are_those_of_the_simulator() -> None:
    from llmserve_env.server.llmserve_environment import LLMServeEnvironment
    from llmserve_env.server.mcp_tools import McpTools

    environment, episode = LLMServeEnvironment(), Episode("bursty_workload")
    environment.reset(seed=4, task_id="bursty_workload")
    episode.reset(4)
    tools = McpTools(environment)
    for cap in (32, 64, 128):
        shown = tools.set_knobs(batch_cap=cap)
        episode.step(episode.task.knobs_from_mapping({"batch_cap": cap}))
        assert shown["p50_ttft_ms"] == observe(episode)["p50_ttft_ms"]
