"""Every setting of the server, read from environment variables with the prefix LLMSERVE_; docs/server.md lists them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


def default_data_dir() -> Path:
    """The user's data folder."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "llmserve_env"


class Settings(BaseSettings):
    """The server's settings. An invalid value stops the server at its start, with a message that names the variable."""

    model_config = SettingsConfigDict(env_prefix="LLMSERVE_", extra="ignore")

    store: str = Field(
        default="", description="`memory`, `sqlite:///path` or `postgresql://…`; empty: a file in the data folder"
    )
    data_dir: Path = Field(default_factory=default_data_dir, description="folder of the embedded session store")
    mode: Literal["sim", "real"] = Field(
        default="sim", description="what serves the requests: the simulator, or the engine of LLMSERVE_REAL_*"
    )

    max_sessions: int = Field(
        default=20_000, ge=1, description="limit of stored HTTP sessions; above it `/reset` answers 503"
    )
    max_live_sessions: int = Field(
        default=256, ge=1, description="episodes kept in memory; others are replayed when needed"
    )
    session_idle_s: float = Field(default=86_400, gt=0, description="idle time after which an HTTP session is deleted")
    max_websockets: int = Field(default=512, ge=1, description="open WebSocket sessions; further ones are refused")
    websocket_idle_s: float = Field(
        default=3_600, gt=0, description="idle time after which a WebSocket is closed and an MCP session is freed"
    )

    steps_per_s: float = Field(default=5_000, ge=0, description="`/step` calls per client and second; 0 for no limit")
    requests_per_s: float = Field(default=200, ge=0, description="other calls per client and second; 0 for no limit")
    plays_per_s: float = Field(default=20, ge=0, description="`/play` calls per client and second; 0 for no limit")
    expensive_per_min: float = Field(
        default=60, ge=0, description="`/grader` and `/baseline` calls per client and minute; 0 for no limit"
    )
    max_body_bytes: int = Field(default=1_000_000, ge=1_000, description="largest request body")
    max_log_steps: int = Field(default=2_000, ge=1, description="longest episode log that is graded")
    expensive_timeout_s: float = Field(default=30, gt=0, description="time limit of one expensive call")
    expensive_workers: int = Field(default=2, ge=1, description="expensive calls that run at the same time")

    cors_origins: list[str] = Field(default=["*"], description="origins that browsers may call from, as a JSON list")
    openenv_console: bool = Field(default=True, description="show OpenEnv's page as a tab of `/web`")
    log_requests: bool = Field(default=True, description="one log line per request, with its id")

    @property
    def store_url(self) -> str:
        """The store's URL; by default, a file in the data folder."""
        return self.store or f"sqlite:///{self.data_dir / 'sessions.db'}"


@cache
def settings() -> Settings:
    """The settings of this process."""
    return Settings()
