"""HTTP sessions: live episodes in front of a journal from which each can be restored.

A step is journaled, then simulated, then answered. An episode that is not in memory, or that another worker has
advanced, is brought up to date by replaying the journal; the simulator gives the same results every time.
"""

from __future__ import annotations

import json
import secrets
import threading
import uuid
from dataclasses import dataclass, field

from llmserve_env.agents.agent import Agent
from llmserve_env.env.episode import MAX_SEED, Episode
from llmserve_env.env.knob_changes import Changes, changed
from llmserve_env.errors import EpisodeStateError, VersionMismatchError
from llmserve_env.server.clients import Client, digest, new_token
from llmserve_env.server.directory import Directory
from llmserve_env.server.episode_memory import EpisodeMemory, HeldEpisode
from llmserve_env.server.episodes import Episodes, SimulatedEpisodes
from llmserve_env.server.errors import AmbiguousClientError, StepConflictError, UnknownSessionError
from llmserve_env.server.store import Action, SessionRecord, SessionStore
from llmserve_env.server.store_limits import StoreLimits
from llmserve_env.server.tasks import known_task, known_version
from llmserve_env.tasks.sections import RewardWeights
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION


@dataclass(slots=True, eq=False)
class Session:
    """A session in memory: its record in the store, and its episode."""

    record: SessionRecord
    held: HeldEpisode
    agents: dict[str, Agent] = field(default_factory=dict)
    """Agents that have played here, by name."""
    agent_steps: dict[str, int] = field(default_factory=dict)
    """The step up to which each of them has seen the episode."""

    @property
    def session_id(self) -> str:
        return self.record.session_id

    @property
    def overrides(self) -> dict[str, float] | None:
        """Reward weights that the reset has replaced."""
        found: dict[str, float] | None = json.loads(self.record.weights) if self.record.weights else None
        return found

    @property
    def key(self) -> int:
        return self.record.key


def new_seed() -> int:
    """A random seed for a reset that names none; /state reports it."""
    return secrets.randbelow(MAX_SEED + 1)


def new_session_id() -> str:
    """An id that cannot be guessed: whoever knows it may use the session."""
    return uuid.uuid4().hex


def weights_for(task: Task, overrides: dict[str, float] | None) -> RewardWeights | None:
    """The task's reward weights with some replaced."""
    return None if not overrides else task.reward.weights.model_copy(update=overrides)


class Sessions:
    """All sessions of this process over one store."""

    def __init__(
        self,
        store: SessionStore,
        limits: StoreLimits | None = None,
        episodes: Episodes | None = None,
        memory: EpisodeMemory | None = None,
        max_in_memory: int = 4096,
    ) -> None:
        self.store = store
        self.limits = limits or StoreLimits(store)
        self.episodes: Episodes = episodes or SimulatedEpisodes()
        self.memory = memory or EpisodeMemory(1 << 40)
        self.directory: Directory[Session] = Directory(max_in_memory, lambda gone: self.memory.forget(gone.held))
        self._replaying = threading.Lock()

    def at_hand(self, session_id: str | None, client: Client) -> Session | None:
        """The session if its next step needs no replay, no unpacking and no waiting."""
        session = self.directory.find(session_id, client) if session_id else self.directory.latest(client)
        if session is None or not session.held.is_at_hand or not self._is_settled(session, client):
            return None
        episode = session.held.episode
        return session if episode is not None and episode.mode == "sim" else None

    def _is_settled(self, session: Session, client: Client) -> bool:
        """Whether nothing is left to note about who owns the session."""
        return bool(session.record.is_claimed) or not client.owner or session.record.owner != client.owner

    def create(
        self,
        task_id: str | int,
        seed: int | None,
        session_id: str | None,
        overrides: dict[str, float] | None,
        client: Client,
        token: str = "",
    ) -> Session:
        """Open a session; the one that this client has under the same id ends. `token` is what the client was given."""
        task = known_task(task_id)
        self.limits.make_room(client.place)
        episode = self._new_episode(task, overrides)
        episode.reset(new_seed() if seed is None else seed)
        record = self._record_of(episode, session_id, client, overrides, token)
        record.key = self.store.create(record)
        self.limits.note_created()
        session = Session(record, self.memory.hold(episode, lambda: self._new_episode(task, overrides)))
        return self.directory.remember(session, is_latest=True)

    def _new_episode(self, task: Task, overrides: dict[str, float] | None) -> Episode:
        return self.episodes.new(task, weights_for(task, overrides))

    def keep(
        self,
        client: Client,
        episode_id: str,
        is_chosen_id: bool,
        episode: Episode,
        overrides: dict[str, float] | None,
    ) -> None:
        """Store an episode played over a WebSocket, so that it can be graded after its connection is gone."""
        self.limits.make_room(client.place)
        record = self._record_of(episode, episode_id, client, overrides, over_http=0)
        record.is_secret = int(not is_chosen_id)
        record.actions = list(episode.log().actions)
        self.store.create(record)
        self.limits.note_created()

    def _record_of(
        self,
        episode: Episode,
        session_id: str | None,
        client: Client,
        overrides: dict[str, float] | None,
        token: str = "",
        over_http: int = 1,
    ) -> SessionRecord:
        """What the store keeps of an episode from its start on; the actions are added step by step."""
        is_secret = session_id is None
        if session_id is not None and over_http:
            same = self.store.find(session_id, client)
            is_secret = same is not None and bool(same.is_secret)
        return SessionRecord(
            session_id=session_id or new_session_id(),
            is_secret=int(is_secret),
            over_http=over_http,
            owner=client.owner or digest(token or new_token()),
            address=client.place,
            program=client.program,
            is_claimed=int(bool(client.owner)),
            task_id=episode.task.id,
            task_version=episode.task.version,
            environment_version=ENVIRONMENT_VERSION,
            seed=int(episode.seed or 0),
            weights=json.dumps(overrides) if overrides else None,
            created_at_min=self.store.clock_min(),
        )

    def has_any(self, client: Client) -> bool:
        """Whether this client has reset a session that calls without an id mean."""
        return self.directory.latest(client) is not None or self.store.latest(client) is not None

    def get(self, session_id: str | None, client: Client) -> Session:
        """The session of this id; without an id the one this client reset last. Another worker may be ahead of it."""
        session = self.directory.find(session_id, client) if session_id else self.directory.latest(client)
        if session is None:
            session = self._restore(self._find(session_id, client))
        if session_id is None:
            self._check_program(session.record, client)
        if not self._is_settled(session, client):
            # From here on, calls from the same address without the token are somebody else's.
            self.store.claim(session.key)
            session.record.is_claimed = 1
            self.directory.settle(session)
        return session

    def current(self, session_id: str | None, client: Client) -> Session:
        """The session as the store has it, whichever worker wrote it."""
        return self._refreshed(self.get(session_id, client), client)

    def _check_program(self, record: SessionRecord, client: Client) -> None:
        if not client.owner and record.program != client.program:
            raise AmbiguousClientError(
                "several programs use this server from your address; send the session_id that /reset answered"
            )

    def _find(self, session_id: str | None, client: Client) -> SessionRecord:
        if session_id is None and not client.can_be_recognised:
            raise AmbiguousClientError(
                "a proxy stands between you and the server, so that your address is not yours alone: send the "
                "session_id that /reset answered, or keep its cookie"
            )
        record = self.store.find(session_id, client) if session_id else self.store.latest(client)
        if record is None and session_id is None:
            raise EpisodeStateError("no session yet: POST /reset first, and send its session_id with each step")
        if record is None:
            raise UnknownSessionError(
                f"there is no session {str(session_id)[:80]!r} of yours: it never existed, it has expired, or it is "
                "another client's; POST /reset"
            )
        return record

    def step(self, session: Session, changes: Changes, step_index: int | None, client: Client) -> Session:
        """Serve one window. With `step_index` a repeated request gets the same answer instead of another step."""
        try:
            has_stepped = self._try_step(session, changes, step_index)
        except (EpisodeStateError, StepConflictError):
            if not self.store.is_shared:
                raise
            # Another worker may have advanced or reset the session in the meantime.
            session = self._refreshed(session, client)
            has_stepped = self._try_step(session, changes, step_index)
        return session if has_stepped else self.step(self._refreshed(session, client), changes, step_index, client)

    def _try_step(self, session: Session, changes: Changes, step_index: int | None) -> bool:
        """Journal, then simulate; False if the journal has this step already, from another worker."""
        with session.held.use() as episode:
            task, done = episode.task, episode.step_count
            if step_index is not None and step_index == done and done > 0:
                before, last = episode.requested_before(done - 1), episode.requested_before(done)
                if task.action_from_knobs(changed(before, changes)).tolist() == task.action_from_knobs(last).tolist():
                    return True
                raise StepConflictError(f"step {step_index} of this session is taken by another action")
            if step_index is not None and step_index != done + 1:
                raise StepConflictError(f"the next step of this session is {done + 1}; got step_index {step_index}")
            if episode.is_done:
                reason = f": {episode.stopped}" if episode.stopped else ""
                raise EpisodeStateError(f"the episode ended after {done} steps{reason}; POST /reset to start another")
            knobs = changed(episode.requested_before(done), changes)
            action: Action = tuple(task.action_from_knobs(knobs).tolist())
            if not self.store.append(session.key, done, action, self.store.clock_min()):
                return False
            episode.step(knobs)
            return True

    def _refreshed(self, session: Session, client: Client) -> Session:
        """The session with the steps that other workers have taken."""
        record = self.store.find(session.session_id, client)
        if record is None or record.key != session.key:
            self.directory.drop(session)
            return self._restore(record or self._find(session.session_id, client))
        with session.held.use() as episode:
            for action in self.store.actions_from(session.key, episode.step_count):
                episode.step(episode.task.knobs_from_action(action))
        return session

    def _restore(self, record: SessionRecord) -> Session:
        """The session of a record, replayed from its journal unless it is in memory."""
        present = self.directory.by_key(record.key)
        if present is not None:
            return present
        if not self.episodes.is_durable:
            raise EpisodeStateError(
                f"session {record.session_id[:80]!r} was not played in the simulator and cannot be brought back; "
                "POST /reset"
            )
        task = known_version(record.task_id, record.task_version)
        if (task.version, ENVIRONMENT_VERSION) != (record.task_version, record.environment_version):
            raise VersionMismatchError(
                f"session {record.session_id[:80]!r} was played on version {record.task_version} of {record.task_id} "
                f"and environment {record.environment_version}; here are {task.version} and {ENVIRONMENT_VERSION}: "
                "POST /reset to start another"
            )
        overrides = json.loads(record.weights) if record.weights else None
        episode = self._new_episode(task, overrides)
        # One replay at a time, so that replays wait for each other, and other calls do not wait for them.
        with self._replaying:
            episode.reset(record.seed)
            for action in self.store.actions_from(record.key, 0):
                episode.step(task.knobs_from_action(action))
        session = Session(record, self.memory.hold(episode, lambda: self._new_episode(task, overrides)))
        return self.directory.remember(session)

    def expire(self, idle_min: int) -> int:
        """Forget sessions that have been idle for this many minutes of server time; returns how many."""
        gone = self.store.expire(self.store.clock_min() - idle_min)
        self.limits.recount()
        return gone
