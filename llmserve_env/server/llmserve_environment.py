"""LLMServeEnvironment: OpenEnv's interface to an Episode. It only translates."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import EnvironmentMetadata

from llmserve_env.env.episode import Episode
from llmserve_env.env.knob_changes import Changes, changed
from llmserve_env.env.observation import observe, state_of
from llmserve_env.errors import ConfigError, EpisodeStateError
from llmserve_env.models import ServeAction, ServeObservation, ServeState
from llmserve_env.server.episode_memory import EpisodeMemory, HeldEpisode
from llmserve_env.server.episodes import Episodes, SimulatedEpisodes
from llmserve_env.server.errors import StoreBusyError
from llmserve_env.server.schemas import ResetRequest
from llmserve_env.server.scoring import score_of
from llmserve_env.server.sessions import new_seed, new_session_id, weights_for
from llmserve_env.server.tasks import known_task, listed_tasks
from llmserve_env.tasks.catalog import BENCHMARK
from llmserve_env.tasks.task import Task
from llmserve_env.version import PACKAGE_VERSION

NAME = "llmserve_env"
DISTRIBUTION = "openenv-llmserve-env"
DESCRIPTION = (
    "Learn LLM inference serving: batching, KV cache, speculation, quantization, prefill/decode split and priorities, "
    "window by window, under latency, memory and cost limits."
)
SPLIT = "train"
MAX_QUICK_RESET_S = 0.005
"""A reset that was this quick the last time runs on the event loop; under load, a thread would cost more."""
UNLIMITED_BYTES = 1 << 40
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs work that would block the event loop, when the client has its turn."""
Keep = Callable[[str, bool, Episode, dict[str, float] | None], None]
"""Stores a played episode: its id, whether the client chose the id, the episode, and its replaced weights."""


def _seen(episode: Episode) -> ServeObservation:
    seen: ServeObservation = ServeObservation.model_validate(observe(episode))
    return seen


@cache
def readme() -> str:
    """The README: the file that OpenEnv's variable names, or the one that was packed with the package."""
    path = Path(os.environ.get("ENV_README_PATH", ""))
    if path.is_file():
        return path.read_text(encoding="utf-8")
    try:
        return metadata(DISTRIBUTION).json["description"]  # type: ignore[return-value]
    except PackageNotFoundError:
        return ""


def environment_metadata() -> EnvironmentMetadata:
    """Name, description and version, for `/metadata` and the console."""
    return EnvironmentMetadata(
        name=NAME,
        description=DESCRIPTION,
        readme_content=readme(),
        version=PACKAGE_VERSION,
        author="The LLMServeEnv maintainers",
    )


class LLMServeEnvironment(Environment):
    """One episode at a time; every WebSocket connection has its own instance."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self,
        keep: Keep | None = None,
        episodes: Episodes | None = None,
        memory: EpisodeMemory | None = None,
        in_thread: InThread = asyncio.to_thread,
    ) -> None:
        super().__init__()
        self._keep, self._in_thread = keep, in_thread
        self._episodes: Episodes = episodes or SimulatedEpisodes()
        self._memory = memory or EpisodeMemory(UNLIMITED_BYTES)
        self._held: HeldEpisode | None = None
        self._overrides: dict[str, float] | None = None
        self._episode_id, self._is_chosen_id = "", False
        self._task: Task | None = None
        self._score: float | None = None
        self._reset_s = math.inf
        self._mcp_server: Any = None

    def reset(
        self,
        /,
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
            try:
                chosen = BENCHMARK[0] if index is None else self.get_task(split or SPLIT, index)["task_id"]
            except IndexError as error:
                raise ConfigError(str(error)) from error
        task, overrides = known_task(chosen), asked.config.overrides()
        # Only a reset that is not refused ends the episode before it.
        held = self._retire()
        # Resetting an episode of the same task takes half the time of making a new one.
        is_same = self._task is task and self._overrides == overrides and self._episodes.is_durable
        if held is None or not is_same or not held.is_at_hand:
            if held is not None:
                self._memory.forget(held)
            make = partial(self._episodes.new, task, weights_for(task, overrides))
            held = self._memory.hold(make(), make)
        self._held, self._task, self._overrides = held, task, overrides
        with held.use() as episode:
            started_s = time.perf_counter()
            episode.reset(new_seed() if seed is None else seed)
            self._reset_s = time.perf_counter() - started_s
            self._episode_id, self._is_chosen_id = episode_id or new_session_id(), episode_id is not None
            self._score = None
            return _seen(episode)

    def step(self, action: ServeAction, timeout_s: float | None = None, **_unused: Any) -> ServeObservation:
        """Serve one window; an environment that was never reset starts with the first task."""
        if self._held is None:
            self.reset()
        with self._current().use() as episode:
            episode.step(changed(episode.requested_before(episode.step_count), action.changes()))
            if episode.is_done:
                self._score = score_of(episode)
            return _seen(episode)

    async def reset_async(
        self, /, seed: int | None = None, episode_id: str | None = None, **options: Any
    ) -> ServeObservation:
        """As `reset`, in a thread unless it only draws new traffic and that is quick."""
        if self._is_quick_reset(options.get("task_id")):
            # While the store is locked, for example by its own tidying, a thread waits for it.
            with suppress(StoreBusyError):
                return self.reset(seed, episode_id, **options)
        seen: ServeObservation = await self._in_thread(partial(self.reset, seed, episode_id, **options))
        return seen

    def _is_quick_reset(self, task_id: str | int | None) -> bool:
        return (
            self._held is not None
            and self._held.is_at_hand
            and self._episodes.is_durable
            and self._task is not None
            and self._task.id == task_id
            and self._reset_s <= MAX_QUICK_RESET_S
        )

    async def step_async(self, action: ServeAction, timeout_s: float | None = None, **_unused: Any) -> ServeObservation:
        """As `step`, on the event loop, because a window is simulated in less time than a thread takes to wake up."""
        if self._episodes.is_durable and self._held is not None and self._held.is_at_hand:
            return self.step(action)
        seen: ServeObservation = await self._in_thread(partial(self.step, action))
        return seen

    def quick_step(self, changes: Changes) -> dict[str, Any] | None:
        """One step of a running simulation, observed; None for a step that does more or would have to wait."""
        held = self._held
        if held is None or not held.is_at_hand:
            return None
        with held.use() as episode:
            done = episode.step_count
            if episode.mode != "sim" or done + 1 >= episode.task.steps:
                return None
            episode.step(changed(episode.requested_before(done), changes))
            return observe(episode)

    @property
    def state(self) -> ServeState:
        """The state of the episode; no id and no steps before the first reset."""
        if self._held is None:
            return ServeState(episode_id=None, step_count=0)
        with self._held.use() as episode:
            return ServeState(episode_id=self._episode_id, score=self._score, **state_of(episode))

    async def state_async(self) -> ServeState:
        """As `state`, in a thread if the episode has to be unpacked first."""
        if self._held is None or self._held.is_at_hand:
            return self.state
        found: ServeState = await self._in_thread(lambda: self.state)
        return found

    def get_metadata(self) -> EnvironmentMetadata:
        return environment_metadata()

    def list_splits(self) -> list[dict[str, str]]:
        """OpenEnv's task API: one split, the catalogue."""
        return [{"name": SPLIT, "type": SPLIT}]

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        self._check_split(split)
        return [self._summary(task) for task in listed_tasks()]

    def num_tasks(self, split: str) -> int:
        return len(self.list_tasks(split))

    def get_task(self, split: str, index: object) -> dict[str, Any]:
        tasks = self.list_tasks(split)
        # A client of the WebSocket may send anything for it.
        if not isinstance(index, int) or not 0 <= index < len(tasks):
            raise IndexError(f"index must be a whole number from 0 to {len(tasks) - 1}; got {str(index)[:80]}")
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
        held = self._retire()
        if held is not None:
            self._memory.forget(held)

    def _current(self) -> HeldEpisode:
        if self._held is None:
            raise EpisodeStateError("reset the episode before its first step")
        return self._held

    def _retire(self) -> HeldEpisode | None:
        held, self._held = self._held, None
        if self._keep is not None and held is not None and self._episodes.is_durable:
            with held.use() as episode:
                if episode.step_count:
                    try:
                        self._keep(self._episode_id, self._is_chosen_id, episode, self._overrides)
                    except StoreBusyError:
                        # The caller tries again in a thread, with the same episode.
                        self._held = held
                        raise
        return held

    def _check_split(self, split: str) -> None:
        if split != SPLIT:
            raise ConfigError(f"split must be {SPLIT!r}, the only one; got {split!r}")

    def _summary(self, task: Task) -> dict[str, Any]:
        return {"task_id": task.id, "name": task.name, "difficulty": task.difficulty, "episode_length": task.steps}
