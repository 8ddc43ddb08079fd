"""Honest clients of `benchmarks.chaos`: they play, repeat what got no answer, and remember every answer."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.chaos_server import ChaosServer
from llmserve_env.env.episode import Episode
from llmserve_env.env.observation import observe
from llmserve_env.tasks.catalog import BENCHMARK, load_task

ACTIONS = [{"batch_cap": cap, "kv_budget_fraction": share} for cap, share in ((32, 1.0), (96, 0.8), (64, 0.5))]
STEPS = 200
THINK_S = 0.01
"""An honest client looks at what it was answered before it acts again."""
RETRY_S = 0.2


@dataclass
class Played:
    """A session, and every answer to it that was acknowledged."""

    session_id: str
    task_id: str
    seed: int
    answers: list[Any] = field(default_factory=list)


class Honest(threading.Thread):
    """Plays one episode after the other, also through crashes of the server."""

    def __init__(self, server: ChaosServer, number: int) -> None:
        super().__init__(daemon=True)
        self._server, self._number, self._stop_now = server, number, threading.Event()
        self.sessions: list[Played] = []
        self.latencies_s: list[float] = []
        self.refused: list[str] = []
        self.num_500 = 0

    def run(self) -> None:
        with httpx.Client(timeout=60.0) as client:
            while not self._stop_now.is_set():
                seed = 1_000 * self._number + len(self.sessions)
                task_id = BENCHMARK[seed % len(BENCHMARK)]
                begun = self._ask(client, "/reset", {"task_id": task_id, "seed": seed})
                if begun is not None:
                    self._play(client, Played(begun["session_id"], task_id, seed))

    def _play(self, client: httpx.Client, session: Played) -> None:
        self.sessions.append(session)
        while len(session.answers) < STEPS and not self._stop_now.wait(THINK_S):
            number = len(session.answers) + 1
            body = {"session_id": session.session_id, "step_index": number, "action": ACTIONS[number % len(ACTIONS)]}
            answer = self._ask(client, "/step", body)
            if answer is None:
                return
            session.answers.append((answer["observation"], answer["reward"]))

    def _ask(self, client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The answer, asked for again while the server is down or its store is held up; None if it is refused."""
        while not self._stop_now.is_set():
            started_s = time.perf_counter()
            was_up, was_disturbed = self._server.is_up, self._server.is_disturbed
            try:
                answer = client.post(f"{self._server.url}{path}", json=body)
            except httpx.HTTPError:
                self._stop_now.wait(RETRY_S)
                continue
            if answer.status_code == 200:
                if path == "/step" and was_up and self._server.is_up:
                    self.latencies_s.append(time.perf_counter() - started_s)
                found: dict[str, Any] = answer.json()
                return found
            self.num_500 += answer.status_code == 500
            if answer.status_code != 503 or not (was_disturbed or self._server.is_disturbed):
                self.refused.append(f"{path} {answer.status_code}: {answer.text[:120]}")
                return None
            self._stop_now.wait(RETRY_S)
        return None

    def finish(self) -> None:
        """End the thread."""
        self._stop_now.set()
        self.join()


def replayed_differently(sessions: list[Played]) -> list[str]:
    """Sessions whose acknowledged answers are not those of an episode that nothing disturbed."""
    wrong = []
    for session in sessions:
        task = load_task(session.task_id)
        episode = Episode(task)
        episode.reset(session.seed)
        for number, (observation, reward) in enumerate(session.answers, start=1):
            episode.step(task.knobs_from_mapping(ACTIONS[number % len(ACTIONS)]))
            expected = observe(episode)
            expected.pop("done")
            if expected.pop("reward") != reward or expected != observation:
                wrong.append(f"{session.task_id} seed {session.seed} step {number}")
                break
    return wrong
