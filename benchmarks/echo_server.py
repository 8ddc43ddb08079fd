"""A minimal OpenEnv server for comparison: `python -m benchmarks.echo_server` serves on a free port."""

from __future__ import annotations

import logging
from typing import Any

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, ConcurrencyConfig, Observation, State

from llmserve_env.server.app import UVICORN, listening_socket


class EchoAction(Action):
    """A message."""

    message: str = ""


class EchoObservation(Observation):
    """The same message."""

    message: str = ""


class EchoEnvironment(Environment):
    """Repeats every message."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_kwargs: Any) -> EchoObservation:
        """Start a new episode."""
        self._steps = 0
        return EchoObservation(message="", reward=0.0)

    def step(self, action: EchoAction, timeout_s: float | None = None, **_kwargs: Any) -> EchoObservation:
        """Repeat the message."""
        self._steps += 1
        return EchoObservation(message=action.message, reward=1.0)

    @property
    def state(self) -> State:
        """Steps so far."""
        return State(step_count=self._steps)


def main() -> None:
    """Serve on a free port and print its address."""
    limits = ConcurrencyConfig(max_concurrent_envs=512, session_timeout=3600)
    app = create_fastapi_app(EchoEnvironment, EchoAction, EchoObservation, concurrency_config=limits)
    bound = listening_socket("127.0.0.1", 0)
    logging.basicConfig(level="INFO")
    logging.getLogger("echo").info("open http://127.0.0.1:%d/web", bound.getsockname()[1])
    # The transport of our server, so that what is compared is the environment.
    config = uvicorn.Config(app, **UVICORN, log_level="warning")
    uvicorn.Server(config).run(sockets=[bound])


if __name__ == "__main__":
    main()
