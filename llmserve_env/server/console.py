"""OpenEnv's built-in page, as a tab of /web. All its visitors share one environment; that is OpenEnv's design."""

from __future__ import annotations

from fastapi import FastAPI
from openenv.core.env_server.web_interface import create_web_interface_app

from llmserve_env.models import ServeAction, ServeObservation, ServeState
from llmserve_env.server import errors
from llmserve_env.server.llmserve_environment import NAME, LLMServeEnvironment

CONSOLE_PATH = "/openenv"


def console_app() -> FastAPI:
    """An app of its own; whoever mounts it runs its lifespan, which a mounted app does not get by itself."""
    console: FastAPI = create_web_interface_app(
        LLMServeEnvironment, ServeAction, ServeObservation, env_name=NAME, state_cls=ServeState, max_concurrent_envs=16
    )
    errors.install(console)
    return console
