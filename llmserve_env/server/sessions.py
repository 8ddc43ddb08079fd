"""HTTP sessions: live episodes in front of a journal from which each can be restored.

A step is journaled, then simulated, then answered. An episode that is not in memory, or that another worker has
advanced, is brought up to date by replaying the journal; the simulator gives the same results every time.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from llmserve_env.agents.agent import Agent
from llmserve_env.env.episode import MAX_SEED, Episode
from llmserve_env.errors import EpisodeStateError, VersionMismatchError
from llmserve_env.server.episodes import Episodes, SimulatedEpisodes
from llmserve_env.server.errors import StepConflictError, TooManySessionsError, UnknownSessionError
from llmserve_env.server.store import Action, SessionRecord, SessionStore
from llmserve_env.server.tasks import known_task
from llmserve_env.tasks.sections import RewardWeights
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION

log = logging.getLogger("llmserve.server")


@dataclass(slots=True)
class Session:
    """A live episode and the journal entry it follows."""

    session_id: str
    key: int
    episode: Episode
    lock: threading.Lock = field(default_factory=threading.Lock)
    agents: dict[str, Agent] = field(default_factory=dict)
    """Agents that have played here, by name."""
    agent_steps: dict[str, int] = field(default_factory=dict)
    """The step up to which each of them has seen the episode."""

    def catch_up(self, actions: list[Action]) -> None:
        for action in actions:
            self.episode.step(self.episode.task.knobs_from_action(action))


def new_seed() -> int:
    """A random seed for a reset that names none; /state reports it."""
    return secrets.randbelow(MAX_SEED + 1)


def weights_for(task: Task, overrides: dict[str, float] | None) -> RewardWeights | None:
    """The task's reward weights with some replaced."""
    return None if not overrides else task.reward.weights.model_copy(update=overrides)


def record_of(episode: Episode, session_id: str, client: str, overrides: dict[str, float] | None) -> SessionRecord:
    """What the store keeps of an episode from its start on; the actions are added step by step."""
    return SessionRecord(
        session_id=session_id,
        client=client,
        task_id=episode.task.id,
        task_version=episode.task.version,
        environment_version=ENVIRONMENT_VERSION,
        seed=int(episode.seed or 0),
        weights=json.dumps(overrides) if overrides else None,
        created_at_s=time.time(),
    )


class Sessions:
    """All sessions of this process over one store."""

    def __init__(self, store: SessionStore, max_live: int, max_stored: int, episodes: Episodes | None = None) -> None:
        self.store = store
        self.episodes: Episodes = episodes or SimulatedEpisodes()
        self._max_live, self._max_stored = max_live, max_stored
        self._live: OrderedDict[str, Session] = OrderedDict()
        self._latest: dict[str, str] = {}
        self._lock = threading.Lock()
        self._num_stored = store.count()

    @property
    def num_live(self) -> int:
        return len(self._live)

    @property
    def num_stored(self) -> int:
        """Sessions in the store, as last counted."""
        return self._num_stored

    def is_live(self, session_id: str | None, client: str) -> bool:
        """Whether the next step of this session needs no replay and no waiting."""
        session = self._live.get(session_id or self._latest.get(client, ""))
        return session is not None and session.episode.mode == "sim" and not session.lock.locked()

    def create(
        self,
        task_id: str | int,
        seed: int | None,
        session_id: str | None,
        overrides: dict[str, float] | None,
        client: str,
    ) -> Session:
        """Open a session; one of the same id ends."""
        if self._num_stored >= self._max_stored:
            self._num_stored = self.store.count()
            if self._num_stored >= self._max_stored:
                raise TooManySessionsError(
                    f"the server holds {self._num_stored} sessions, as many as LLMSERVE_MAX_SESSIONS allows; try later"
                )
        task = known_task(task_id)
        episode = self.episodes.new(task, weights_for(task, overrides))
        episode.reset(new_seed() if seed is None else seed)
        record = record_of(episode, session_id or uuid.uuid4().hex, client, overrides)
        session = Session(record.session_id, self.store.create(record), episode)
        self._num_stored += 1
        self._remember(session)
        with self._lock:
            self._latest[client] = session.session_id
            if len(self._latest) > 2 * self._max_live:
                self._latest.pop(next(iter(self._latest)))
        return session

    def keep(self, session_id: str, episode: Episode, overrides: dict[str, float] | None) -> None:
        """Store an episode played elsewhere, so that it can be graded and looked at after its connection is gone."""
        if self._num_stored >= self._max_stored:
            log.warning("the session store is full: the episode of WebSocket session %s is not kept", session_id)
            return
        record = record_of(episode, session_id, "", overrides)
        record.actions = list(episode.log().actions)
        self.store.create(record)
        self._num_stored += 1

    def latest(self, client: str) -> str | None:
        """The session this client reset last."""
        return self._latest.get(client) or self.store.latest_of(client)

    def get(self, session_id: str | None, client: str) -> Session:
        """The session of this id; without an id the one this client reset last. Another worker may be ahead of it."""
        session_id = session_id or self.latest(client)
        if session_id is None:
            raise EpisodeStateError("no session yet: POST /reset first, and send its session_id with each step")
        with self._lock:
            session = self._live.get(session_id)
            if session is not None:
                self._live.move_to_end(session_id)
        return session or self._restore(session_id)

    def current(self, session_id: str | None, client: str) -> Session:
        """The session as the journal has it, whichever worker wrote it."""
        session = self.get(session_id, client)
        return self._restore(session.session_id) if self.store.is_shared else session

    def step(self, session: Session, knob_values: Sequence[float], step_index: int | None) -> Session:
        """Serve one window. With `step_index` a repeated request gets the same answer instead of another step."""
        try:
            has_stepped = self._try_step(session, knob_values, step_index)
        except (EpisodeStateError, StepConflictError):
            if not self.store.is_shared:
                raise
            # Another worker may have advanced or reset the session in the meantime.
            session = self._restore(session.session_id)
            has_stepped = self._try_step(session, knob_values, step_index)
        return session if has_stepped else self.step(self._restore(session.session_id), knob_values, step_index)

    def _try_step(self, session: Session, knob_values: Sequence[float], step_index: int | None) -> bool:
        """Journal, then simulate; False if the journal has this step already, from another worker."""
        with session.lock:
            task, done = session.episode.task, session.episode.step_count
            knobs = np.array(knob_values)
            action: Action = tuple(task.action_from_knobs(knobs).tolist())
            if step_index is not None and step_index == done and done > 0:
                if tuple(task.action_from_knobs(session.episode.trajectory.requested[done - 1]).tolist()) == action:
                    return True
                raise StepConflictError(f"step {step_index} of this session is taken by another action")
            if step_index is not None and step_index != done + 1:
                raise StepConflictError(f"the next step of this session is {done + 1}; got step_index {step_index}")
            if session.episode.is_done:
                stopped = session.episode.stopped
                reason = f": {stopped}" if stopped else ""
                raise EpisodeStateError(f"the episode ended after {done} steps{reason}; POST /reset to start another")
            if not self.store.append(session.key, done, action, time.time()):
                return False
            session.episode.step(knobs)
            return True

    def _restore(self, session_id: str) -> Session:
        record = self.store.load(session_id)
        if record is None:
            with self._lock:
                self._live.pop(session_id, None)
            raise UnknownSessionError(
                f"there is no session {session_id[:80]!r}: it never existed, or it has expired; POST /reset"
            )
        session = self._live.get(session_id)
        if session is not None and session.key == record.key:
            with session.lock:
                session.catch_up(record.actions[session.episode.step_count :])
            return session
        if not self.episodes.is_durable:
            raise EpisodeStateError(
                f"session {session_id[:80]!r} was played on a real engine and cannot be brought back; POST /reset"
            )
        task = known_task(record.task_id)
        if (task.version, ENVIRONMENT_VERSION) != (record.task_version, record.environment_version):
            raise VersionMismatchError(
                f"session {session_id[:80]!r} was played on version {record.task_version} of {record.task_id} and "
                f"environment {record.environment_version}; here are {task.version} and {ENVIRONMENT_VERSION}: "
                "POST /reset to start another"
            )
        episode = Episode(task, weights=weights_for(task, json.loads(record.weights) if record.weights else None))
        episode.reset(record.seed)
        session = Session(session_id, record.key, episode)
        session.catch_up(record.actions)
        return self._remember(session)

    def _remember(self, session: Session) -> Session:
        with self._lock:
            present = self._live.get(session.session_id)
            if present is not None and present.key == session.key:
                return present
            self._live[session.session_id] = session
            self._live.move_to_end(session.session_id)
            while len(self._live) > self._max_live:
                self._live.popitem(last=False)
        return session

    def expire(self, idle_s: float) -> int:
        """Forget idle sessions; returns how many."""
        gone = self.store.expire(time.time() - idle_s)
        self._num_stored = self.store.count()
        return gone
