"""Every setting of the server, read from environment variables with the prefix LLMSERVE_; docs/server.md lists them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from llmserve_env.server import connections

MAX_LOG_ENTRIES = 10_000
"""Longer lists in a log are refused before anybody looks at their entries."""


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
    mode: Literal["sim", "real", "table"] = Field(
        default="sim",
        description="what serves the requests: the simulator, the engine of LLMSERVE_REAL_*, or a lookup table",
    )
    table: Path | None = Field(
        default=None, description="lookup table of mode `table`; empty: the shipped `traces_llama3_8b.parquet`"
    )
    table_memory_gb: float | None = Field(
        default=None, gt=0, description="memory of the table's card, GB; empty: as the file says"
    )

    memory_mb: int = Field(
        default=2_000, ge=256, description="memory of a server process; episodes get what is left after its start"
    )
    store_mb: int = Field(
        default=1_000, ge=16, description="size of the session store; above it the oldest sessions are deleted"
    )
    max_sessions: int = Field(
        default=20_000, ge=1, description="stored sessions; above it the client with the most loses its oldest"
    )
    max_sessions_per_client: int = Field(
        default=2_000, ge=1, description="stored sessions of one address; above it its own oldest are deleted"
    )
    max_live_sessions: int = Field(
        default=4_096, ge=1, description="HTTP sessions in memory; others are replayed when needed"
    )
    session_idle_s: float = Field(
        default=86_400, ge=60, description="time without use, while a server runs, after which a session is deleted"
    )
    max_websockets: int = Field(default=512, ge=1, description="open WebSocket sessions; further ones are refused")
    max_websockets_per_client: int = Field(default=256, ge=1, description="open WebSocket sessions of one address")
    websocket_idle_s: float = Field(default=3_600, gt=0, description="idle time after which a WebSocket is closed")
    max_mcp_sessions: int = Field(default=32, ge=2, description="sessions made by `POST /mcp`; each takes a thread")
    max_mcp_sessions_per_client: int = Field(default=4, ge=1, description="of these, sessions of one address")
    mcp_idle_s: float = Field(default=300, gt=0, description="idle time after which a session of `/mcp` is freed")

    trusted_hops: int = Field(
        default=0,
        ge=0,
        le=10,
        description="proxies in front of the server that set `X-Forwarded-For`; with 0 the header is ignored",
    )
    max_connections: int = Field(
        default=connections.MAX_CONNECTIONS, ge=8, description="open connections; further ones are closed at once"
    )
    max_connections_per_client: int = Field(
        default=connections.MAX_CONNECTIONS_PER_CLIENT,
        ge=1,
        description="open connections of one address; no limit with `LLMSERVE_TRUSTED_HOPS`",
    )
    header_timeout_s: float = Field(
        default=connections.HEADER_TIMEOUT_S, gt=0, description="time in which a request's headers must arrive"
    )
    body_timeout_s: float = Field(default=30, gt=0, description="time in which a request's body must arrive")

    steps_per_s: float = Field(default=5_000, ge=0, description="`/step` calls per client and second; 0 for no limit")
    requests_per_s: float = Field(default=200, ge=0, description="other calls per client and second; 0 for no limit")
    plays_per_s: float = Field(
        default=20,
        ge=0,
        description="`/play`, `/mcp`, `/agents`, `/schema`, `/info`, and `/metrics` calls per client and second",
    )
    expensive_per_min: float = Field(
        default=60, ge=0, description="`/grader` and `/baseline` calls per client and minute; 0 for no limit"
    )
    max_body_bytes: int = Field(
        default=1_000_000, ge=1_000, description="largest body of a log for `/grader`; other bodies end at 65,536 bytes"
    )
    max_log_steps: int = Field(
        default=2_000, ge=1, le=MAX_LOG_ENTRIES, description="longest episode log that is graded"
    )
    expensive_timeout_s: float = Field(default=30, gt=0, description="time limit of one expensive call")
    expensive_workers: int = Field(default=2, ge=1, description="expensive calls that run at the same time")
    openai_baseline: bool = Field(
        default=False, description="allow `/baseline?use_openai=true`, which spends the operator's money"
    )
    openai_calls_per_hour: int = Field(
        default=1_000, ge=1, description="calls to the model's API that all such baselines together may make"
    )

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
