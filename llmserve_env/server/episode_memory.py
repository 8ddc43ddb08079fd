"""The memory that live episodes may take, for HTTP sessions and WebSockets together.

An episode that has not been used for a while is packed: its state is copied and compressed to a few per cent of its
size, and unpacking takes about a millisecond. When packed episodes need too much memory as well, the oldest are reduced
to their actions, which are replayed when needed. Either way the episode goes on exactly as if it had stayed.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from llmserve_env.arrays import Array
from llmserve_env.engine.engine import EngineSnapshot
from llmserve_env.env.episode import Episode
from llmserve_env.env.episode_batch import BatchSnapshot

CODEC = "lz4_raw"
PACKED_SHARE = 0.07
"""Part of the budget that packed episodes may take."""
HOT_S = 5.0
"""An episode that was used within this time is probably used again soon."""
NewEpisode = Callable[[], Episode]


@dataclass(frozen=True, slots=True)
class Recipe:
    """An episode as its seed and what was asked for, from which replaying reproduces it."""

    seed: int
    requested: Array

    @classmethod
    def of(cls, episode: Episode) -> Recipe:
        """The recipe of an episode."""
        return cls(int(episode.seed or 0), episode.trajectory.requested[: episode.step_count].copy())

    def follow(self, episode: Episode) -> Episode:
        """Replay the steps in a new episode of the same task."""
        episode.reset(self.seed)
        for knobs in self.requested:
            episode.step(knobs)
        return episode


@dataclass(frozen=True, slots=True)
class Packed:
    """An episode as compressed bytes, with its recipe."""

    recipe: Recipe
    shapes: tuple[tuple[tuple[int, ...], np.dtype[np.void]], ...]
    max_requests: int
    content: bytes

    @classmethod
    def of(cls, episode: Episode) -> Packed:
        """A copy of everything that stepping has changed."""
        arrays = _arrays_of(episode)
        content = pa.compress(b"".join(array.tobytes() for array in arrays), codec=CODEC, asbytes=True)
        max_requests = episode.batch.engine.max_requests
        return cls(Recipe.of(episode), tuple((array.shape, array.dtype) for array in arrays), max_requests, content)

    @property
    def num_bytes(self) -> int:
        return len(self.content) + self.recipe.requested.nbytes

    def unpack(self, episode: Episode) -> Episode:
        """Bring a new episode of the same task to where the packed one was."""
        episode.reset(self.recipe.seed)
        # An earlier seed of the packed episode may have drawn more requests.
        episode.batch.engine.make_room(self.max_requests)
        sizes = [int(np.prod(shape)) * dtype.itemsize for shape, dtype in self.shapes]
        raw = pa.decompress(self.content, decompressed_size=sum(sizes), codec=CODEC, asbytes=True)
        arrays, start = [], 0
        for (shape, dtype), size in zip(self.shapes, sizes, strict=True):
            arrays.append(np.frombuffer(raw, dtype, count=size // dtype.itemsize, offset=start).reshape(shape))
            start += size
        _put_back(episode, arrays, len(self.recipe.requested))
        return episode


def _records_of(episode: Episode) -> tuple[Array, ...]:
    kept = episode.trajectory
    return kept.terms, kept.metrics, kept.window, kept.knobs, kept.requested


def _arrays_of(episode: Episode) -> list[Array]:
    batch, n = episode.batch, episode.step_count
    snapshot = batch.snapshot()
    played = (array[:n] for array in _records_of(episode))
    return [*snapshot.engine.arrays, snapshot.control, batch.metrics, batch.terms, *played]


def _put_back(episode: Episode, arrays: list[Array], num_steps: int) -> None:
    batch, records = episode.batch, _records_of(episode)
    *engine, control, metrics, terms = arrays[: -len(records)]
    batch.restore(BatchSnapshot(EngineSnapshot(tuple(engine)), control))
    batch.metrics[...], batch.terms[...] = metrics, terms
    for target, array in zip(records, arrays[-len(records) :], strict=True):
        target[:num_steps] = array
    episode.trajectory.num_steps = num_steps


class HeldEpisode:
    """An episode that may be packed while nobody uses it."""

    __slots__ = ("_lock", "_make", "_memory", "_stored", "episode", "num_bytes", "used_at_s")

    def __init__(self, memory: EpisodeMemory, episode: Episode, make: NewEpisode) -> None:
        self.episode: Episode | None = episode
        """None while packed; to be used under `use` only."""
        self.num_bytes = episode.num_bytes if episode.mode == "sim" else 0
        self.used_at_s = 0.0
        self._memory, self._make, self._lock = memory, make, threading.Lock()
        self._stored: Packed | Recipe | None = None

    @property
    def is_at_hand(self) -> bool:
        """Whether the episode can be used without unpacking it and without waiting for anybody."""
        return self.episode is not None and not self._lock.locked()

    @contextmanager
    def use(self) -> Iterator[Episode]:
        """The episode, for one user at a time."""
        with self._lock:
            if self.episode is None:
                self._bring_back()
            else:
                self._memory.note_use(self)
            assert self.episode is not None
            yield self.episode

    def _bring_back(self) -> None:
        stored, made = self._stored, self._make()
        self.episode = stored.unpack(made) if isinstance(stored, Packed) else stored.follow(made)  # type: ignore[union-attr]
        self._stored = None
        self._memory.add(self)

    def pack(self) -> int:
        """Compress the episode and return its new size; 0 if it is in use. Called by the memory only."""
        if not self._lock.acquire(blocking=False):
            return 0
        try:
            if self.episode is None:
                return 0
            packed = Packed.of(self.episode)
            self._stored, self.episode = packed, None
            return packed.num_bytes
        finally:
            self._lock.release()

    def reduce(self) -> None:
        """Keep the recipe alone. Called by the memory only."""
        if self._lock.acquire(blocking=False):
            if isinstance(self._stored, Packed):
                self._stored = self._stored.recipe
            self._lock.release()


class EpisodeMemory:
    """All held episodes of a process, those used last at the end."""

    def __init__(self, budget_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.budget_bytes, self._clock = budget_bytes, clock
        self._rng = random.Random(0)
        self._live: OrderedDict[HeldEpisode, int] = OrderedDict()
        self._packed: OrderedDict[HeldEpisode, int] = OrderedDict()
        self._live_bytes = self._packed_bytes = self.lent_bytes = 0
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        """Memory of all held episodes."""
        return self._live_bytes + self._packed_bytes

    @property
    def num_packed(self) -> int:
        return len(self._packed)

    def hold(self, episode: Episode, make: NewEpisode) -> HeldEpisode:
        """Hold a new episode; `make` makes another of the same task and weights. Others may be packed now."""
        held = HeldEpisode(self, episode, make)
        # What a real engine does cannot be packed.
        if held.num_bytes:
            self.add(held)
        return held

    def add(self, held: HeldEpisode) -> None:
        """Count an episode that has been made or unpacked, and make room for it."""
        with self._lock:
            self._packed_bytes -= self._packed.pop(held, 0)
            self._live[held] = held.num_bytes
            self._live_bytes += held.num_bytes
            held.used_at_s = self._clock()
        self._make_room(held)

    def note_use(self, held: HeldEpisode) -> None:
        with self._lock:
            if held in self._live:
                self._live.move_to_end(held)
                held.used_at_s = self._clock()

    def forget(self, held: HeldEpisode) -> None:
        """Stop counting an episode that nobody will use again."""
        with self._lock:
            self._live_bytes -= self._live.pop(held, 0)
            self._packed_bytes -= self._packed.pop(held, 0)

    def fit(self, budget_bytes: int) -> None:
        """Take another budget, and pack or reduce what is above it."""
        self.budget_bytes = budget_bytes
        self._make_room(None)
        self._reduce_oldest()

    @contextmanager
    def lend(self, num_bytes: int) -> Iterator[None]:
        """Leave a part of the budget to something else for a while; episodes are packed to make room for it."""
        with self._lock:
            self.lent_bytes += num_bytes
        try:
            self._make_room(None)
            yield
        finally:
            with self._lock:
                self.lent_bytes -= num_bytes

    def _make_room(self, newest: HeldEpisode | None) -> None:
        busy: set[HeldEpisode] = {newest} if newest is not None else set()
        while (chosen := self._to_be_packed(busy)) is not None:
            size = chosen.pack()
            busy.add(chosen)
            if size:
                self._note_packed(chosen, size)

    def _to_be_packed(self, busy: set[HeldEpisode]) -> HeldEpisode | None:
        with self._lock:
            if self._live_bytes + self.lent_bytes <= (1.0 - PACKED_SHARE) * self.budget_bytes:
                return None
            oldest = next((held for held in self._live if held not in busy), None)
            if oldest is None or self._clock() - oldest.used_at_s > HOT_S:
                return oldest
            # All are in use. If they are stepped in turn, the oldest is the one that is needed next.
            return self._rng.choice([held for held in self._live if held not in busy])

    def _note_packed(self, held: HeldEpisode, size: int) -> None:
        with self._lock:
            # It may have been forgotten, or unpacked again, in the meantime.
            if held.episode is None and held in self._live:
                self._live_bytes -= self._live.pop(held)
                self._packed[held] = size
                self._packed_bytes += size
        self._reduce_oldest()

    def _reduce_oldest(self) -> None:
        reduced = []
        with self._lock:
            while self._packed_bytes > PACKED_SHARE * self.budget_bytes:
                oldest, freed = self._packed.popitem(last=False)
                self._packed_bytes -= freed
                reduced.append(oldest)
        for oldest in reduced:
            oldest.reduce()
