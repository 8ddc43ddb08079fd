"""LLMServeEnvironment: OpenEnv's interface to an Episode. It only translates."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import EnvironmentMetadata

from llmserve_env.env.episode import Episode
from llmserve_env.env.observation import observe, state_of
from llmserve_env.errors import ConfigError, EpisodeStateError
from llmserve_env.models import ServeAction, ServeObservation, ServeState
from llmserve_env.server.episodes import Episodes, SimulatedEpisodes
from llmserve_env.server.schemas import ResetRequest
from llmserve_env.server.scoring import score_of
from llmserve_env.server.sessions import new_seed, weights_for
from llmserve_env.server.tasks import known_task
from llmserve_env.tasks.catalog import BENCHMARK, task_ids
from llmserve_env.version import PACKAGE_VERSION

NAME = "llmserve_env"
DESCRIPTION = (
    "Learn LLM inference serving: batching, KV cache, speculation, quantization, prefill/decode split and priorities, "
    "window by window, under latency, memory and cost limits."
)
SPLIT = "train"
MAX_QUICK_RESET_S = 0.005
"""A reset that was this quick the last time runs on the event loop; under load, a thread would cost more."""
Keep = Callable[[str, Episode, dict[str, float] | None], None]


def environment_metadata() -> EnvironmentMetadata:
    """Name, description and version, for `/metadata` and the console."""
    return EnvironmentMetadata(
        name=NAME, description=DESCRIPTION, version=PACKAGE_VERSION, author="The LLMServeEnv maintainers"
    )


class LLMServeEnvironment(Environment):
    """One episode at a time; every WebSocket connection has its own instance."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, keep: Keep | None = None, episodes: Episodes | None = None) -> None:
        super().__init__()
        self._keep = keep
        self._episodes: Episodes = episodes or SimulatedEpisodes()
        self._episode: Episode | None = None
        self._overrides: dict[str, float] | None = None
        self._episode_id = ""
        self._score: float | None = None
        self._reset_s = math.inf
        self._mcp_server: Any = None

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task_id: str | int | None = None,
        config: dict[str, Any] | None = None,
        split: str | None = None,
        index: int | None = None,
        **unknown: Any,
    ) -> ServeObservation:
        """Start an episode of a task, named by id or by split and index; a seed is drawn if none is given."""
        if unknown:
            raise ConfigError(
                f"unknown reset options: {', '.join(sorted(unknown))}; "
                "allowed: seed, episode_id, task_id, config, split, index"
            )
        asked = ResetRequest.model_validate(
            {"seed": seed, "episode_id": episode_id, "task_id": task_id, "config": config or {}}
        )
        chosen = asked.task_id
        if chosen is None:
            chosen = BENCHMARK[0] if index is None else self.get_task(split or SPLIT, index)["task_id"]
        task = known_task(chosen)
        overrides = asked.config.overrides()
        # Only a reset that is not refused ends the episode before it.
        played = self._retire()
        # Resetting an episode of the same task takes half the time of making a new one.
        if played is None or played.task is not task or self._overrides != overrides or not self._episodes.is_durable:
            played = self._episodes.new(task, weights_for(task, overrides))
        self._episode, self._overrides = played, overrides
        started_s = time.perf_counter()
        played.reset(new_seed() if seed is None else seed)
        self._reset_s = time.perf_counter() - started_s
        self._episode_id, self._score = episode_id or uuid.uuid4().hex, None
        return self._seen()

    def step(self, action: ServeAction, timeout_s: float | None = None, **_unused: Any) -> ServeObservation:
        """Serve one window; an environment that was never reset starts with the first task."""
        episode = self._advance(action)
        if episode.is_done:
            self._score = score_of(episode)
        return self._seen()

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **options: Any
    ) -> ServeObservation:
        """As `reset`, in a thread unless it only draws new traffic and that is quick."""
        if self._is_quick_reset(options.get("task_id")):
            return self.reset(seed, episode_id, **options)
        return await asyncio.to_thread(self.reset, seed, episode_id, **options)

    def _is_quick_reset(self, task_id: str | int | None) -> bool:
        episode = self._episode
        return (
            episode is not None
            and self._episodes.is_durable
            and episode.task.id == task_id
            and self._reset_s <= MAX_QUICK_RESET_S
        )

    async def step_async(self, action: ServeAction, timeout_s: float | None = None, **_unused: Any) -> ServeObservation:
        """As `step`, on the event loop, because a window is simulated in less time than a thread takes to wake up."""
        if self._episodes.is_durable:
            episode = self._advance(action)
        else:
            episode = await asyncio.to_thread(self._advance, action)
        if episode.is_done:
            self._score = score_of(episode)
        return self._seen()

    def quick_step(self, action: tuple[float, ...]) -> dict[str, Any] | None:
        """One step of a running simulation, observed; None for a step that does more: the last one, or a real one."""
        episode = self._episode
        if episode is None or episode.mode != "sim" or episode.step_count + 1 >= episode.task.steps:
            return None
        episode.step(np.array(action))
        return observe(episode)

    def _advance(self, action: ServeAction) -> Episode:
        if self._episode is None:
            self.reset()
        episode = self._current()
        episode.step(np.array(action.numbers()))
        return episode

    @property
    def state(self) -> ServeState:
        """The state of the episode; no id and no steps before the first reset."""
        if self._episode is None:
            return ServeState(episode_id=None, step_count=0)
        return ServeState(episode_id=self._episode_id, score=self._score, **state_of(self._episode))

    def get_metadata(self) -> EnvironmentMetadata:
        return environment_metadata()

    def list_splits(self) -> list[dict[str, str]]:
        """OpenEnv's task API: one split, the catalogue."""
        return [{"name": SPLIT, "type": SPLIT}]

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        self._check_split(split)
        return [self._summary(task_id) for task_id in task_ids()]

    def num_tasks(self, split: str) -> int:
        return len(self.list_tasks(split))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        tasks = self.list_tasks(split)
        if not 0 <= index < len(tasks):
            raise IndexError(f"index must be from 0 to {len(tasks) - 1}; got {index}")
        return tasks[index]

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        return self.list_tasks(split)[start:stop]

    @property
    def mcp_server(self) -> Any:
        """The MCP tools of this session, which OpenEnv serves at `/mcp`; made when they are first asked for."""
        if self._mcp_server is None:
            # Loading FastMCP takes longer than most sessions, which never ask for it.
            from llmserve_env.server.mcp_tools import mcp_server

            self._mcp_server = mcp_server(self)
        return self._mcp_server

    def web_actions(self, observation: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """One-click actions of OpenEnv's console."""
        return [
            ("defaults", {}),
            ("larger batch", {"batch_cap": 96}),
            ("less memory", {"batch_cap": 96, "kv_budget_fraction": 0.5}),
            ("speculate", {"batch_cap": 64, "speculation_depth": 2}),
        ]

    def close(self) -> None:
        """Hand a played episode over to the session store. Calling it again does nothing."""
        self._retire()

    def _current(self) -> Episode:
        if self._episode is None:
            raise EpisodeStateError("reset the episode before its first step")
        return self._episode

    def _seen(self) -> ServeObservation:
        seen: ServeObservation = ServeObservation.model_validate(observe(self._current()))
        return seen

    def _retire(self) -> Episode | None:
        played, self._episode = self._episode, None
        if self._keep is not None and played is not None and played.step_count and self._episodes.is_durable:
            self._keep(self._episode_id, played, self._overrides)
        return played

    def _check_split(self, split: str) -> None:
        if split != SPLIT:
            raise ConfigError(f"split must be {SPLIT!r}, the only one; got {split!r}")

    def _summary(self, task_id: str) -> dict[str, Any]:
        task = known_task(task_id)
        return {"task_id": task.id, "name": task.name, "difficulty": task.difficulty, "episode_length": task.steps}
