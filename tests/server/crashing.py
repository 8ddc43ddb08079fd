"""Kill the server under load, again and again: `python -m tests.server.crashing 20`.

Sessions step until the server dies under them, then go on with the next server over the same store. At the end every
answer that was ever acknowledged is compared with an episode that nothing interrupted.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi.testclient import TestClient

from llmserve_env.server.application import create_app
from tests.server.conftest import settings
from tests.server.running import RunningServer

ACTIONS = [{"batch_cap": cap, "kv_budget_fraction": share} for cap, share in ((32, 1.0), (96, 0.8), (64, 0.5))]
TASKS = ("static_workload", "bursty_workload", "adversarial_multitenant")
STEPS = 200
STEPS_UNDER_WAY = 5
"""A session that has done so many steps since the last crash is under load."""


@dataclass
class Played:
    """A session and what was acknowledged of it."""

    seed: int
    answers: list[Any] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"session-{self.seed}"

    @property
    def reset(self) -> dict[str, Any]:
        return {"session_id": self.name, "task_id": TASKS[self.seed % len(TASKS)], "seed": self.seed}

    def step(self, client: httpx.Client | TestClient) -> None:
        number = len(self.answers) + 1
        body = {"session_id": self.name, "step_index": number, "action": ACTIONS[number % len(ACTIONS)]}
        answer = client.post("/step", json=body)
        assert answer.status_code == 200, answer.text
        self.answers.append((answer.json()["observation"], answer.json()["reward"]))


class Stepper(threading.Thread):
    """Steps a session until its end, or until the server dies under it."""

    def __init__(self, url: str, played: Played) -> None:
        super().__init__(daemon=True)
        self._url, self._played = url, played
        self.is_under_way = threading.Event()
        self.problem: BaseException | None = None

    def run(self) -> None:
        first = len(self._played.answers)
        try:
            with httpx.Client(base_url=self._url, timeout=120) as client:
                if not first:
                    client.post("/reset", json=self._played.reset).raise_for_status()
                while len(self._played.answers) < STEPS:
                    self._played.step(client)
                    if len(self._played.answers) >= first + STEPS_UNDER_WAY:
                        self.is_under_way.set()
        except httpx.TransportError:
            return
        except (AssertionError, httpx.HTTPStatusError) as problem:
            self.problem = problem
            self.is_under_way.set()


def load_until_killed(store: str, sessions: list[Played]) -> None:
    """One life of the server."""
    server = RunningServer(store)
    steppers = [Stepper(server.url, played) for played in sessions]
    for stepper in steppers:
        stepper.start()
    for stepper in steppers:
        assert stepper.is_under_way.wait(timeout=300)
    server.kill()
    for stepper in steppers:
        stepper.join(timeout=120)
        if stepper.problem is not None:
            raise stepper.problem


def crash_and_resume(folder: Path, sessions: int, crashes: int) -> list[Played]:
    """All sessions there ever were, each checked against an uninterrupted episode."""
    store = f"sqlite:///{folder / 'sessions.db'}"
    ever = [Played(seed) for seed in range(sessions)]
    for _ in range(crashes):
        unfinished = [played for played in ever if len(played.answers) <= STEPS - STEPS_UNDER_WAY]
        ever += [Played(len(ever) + more) for more in range(sessions - len(unfinished))]
        load_until_killed(store, [played for played in ever if len(played.answers) <= STEPS - STEPS_UNDER_WAY])
    with RunningServer(store) as server, httpx.Client(base_url=server.url, timeout=120) as client:
        for played in ever:
            state = client.get("/state", params={"session_id": played.name}).json()
            # The step under way when the server died may be journaled without an answer; none with one is missing.
            assert len(played.answers) <= state["step_count"] <= len(played.answers) + 1
            while len(played.answers) < min(state["step_count"] + 3, STEPS):
                played.step(client)
    with TestClient(create_app(settings())) as undisturbed:
        for played in ever:
            again = Played(played.seed)
            undisturbed.post("/reset", json=again.reset).raise_for_status()
            while len(again.answers) < len(played.answers):
                again.step(undisturbed)
            assert again.answers == played.answers, f"{played.name} went on differently"
    return ever


def main() -> None:
    """The command."""
    crashes = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with tempfile.TemporaryDirectory() as folder:
        ever = crash_and_resume(Path(folder), sessions=8, crashes=crashes)
    steps = sum(len(played.answers) for played in ever)
    print(f"{crashes} kills, {len(ever)} sessions, {steps} acknowledged steps: none lost, every answer the same")


if __name__ == "__main__":
    main()
