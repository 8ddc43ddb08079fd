"""Every setting of real mode, read from LLMSERVE_REAL_*; docs/real.md lists them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from llmserve_env.errors import ConfigError, MissingCredentialError
from llmserve_env.llm_prices import DEFAULT_MODEL, prices_of

KEY_VARIABLE = "OPENAI_API_KEY"
API_PATIENCE_S = 30.0
ProviderName = Literal["openai", "vllm"]


class RealSettings(BaseSettings):
    """Where requests go, how long they may take, and what an episode may spend. Reaching a cap ends the episode."""

    model_config = SettingsConfigDict(env_prefix="LLMSERVE_REAL_", extra="ignore")

    provider: ProviderName = Field(default="openai", description="`openai`: any compatible API; `vllm`: ours to steer")
    model: str = Field(default=DEFAULT_MODEL, description="model to ask for")
    base_url: str | None = Field(default=None, description="root of the API, with `/v1`; empty: the client's default")
    control_dir: Path | None = Field(
        default=None, description="folder shared with vLLM's scheduler; needed by `vllm`, see `llmserve real start`"
    )

    record_iterations: bool = Field(
        default=False, description="`vllm`: its scheduler writes every iteration to the control folder"
    )

    window_s: float | None = Field(
        default=None, gt=0, description="length of a window, over which its arrivals are spread; empty: the task's"
    )
    patience_s: float | None = Field(
        default=None, gt=0, description="a client's wait for its first token; empty: 30 for `openai`, else the task's"
    )
    slo_scale: float = Field(default=1.0, gt=0, description="the task's TTFT SLOs are multiplied by this")
    max_in_flight: int = Field(
        default=64, ge=1, description="`openai`: requests under way at once, whatever the batch cap says"
    )
    spread_caps: bool = Field(
        default=True, description="share the caps below among the windows left, so that an episode reaches its end"
    )

    max_requests_per_step: int = Field(default=64, ge=1, description="requests sent per window; further ones are not")
    max_prompt_tokens: int = Field(default=2_048, ge=1, description="longer prompts are cut to this")
    max_completion_tokens: int = Field(default=256, ge=1, description="longer answers are cut to this")

    max_requests: int = Field(default=5_000, ge=1, description="requests per episode")
    max_tokens: int = Field(default=2_000_000, ge=1, description="prompt and completion tokens per episode")
    max_usd: float = Field(default=1.0, gt=0, description="dollars per episode, at the prices below")
    price_in_usd_per_million: float | None = Field(default=None, ge=0, description="empty: the list of known models")
    price_out_usd_per_million: float | None = Field(default=None, ge=0, description="empty: the list of known models")

    max_answer_bytes: int = Field(
        default=4_000_000, ge=1_000, description="bytes of one answer, as it is streamed; longer ones fail"
    )
    connect_timeout_s: float = Field(
        default=5.0, gt=0, description="to open a connection, and to read the list of models or the metrics as a whole"
    )
    stall_timeout_s: float = Field(default=30.0, gt=0, description="longest silence in a stream")
    request_timeout_s: float = Field(default=120.0, gt=0, description="a whole request, retries included")
    max_retries: int = Field(default=2, ge=0, description="after 429, 5xx or a lost connection, with growing pauses")

    def patience_of(self, of_task_s: float) -> float:
        """How long a client waits. Tasks assume a fleet whose answers begin within a second; an API's may not."""
        if self.patience_s is not None:
            return self.patience_s
        return max(of_task_s, API_PATIENCE_S) if self.provider == "openai" else of_task_s

    def api_key(self) -> str:
        """The key; a vLLM that checks none takes any text."""
        key = os.environ.get(KEY_VARIABLE, "")
        if key:
            return key
        if self.provider == "vllm":
            return "none"
        raise MissingCredentialError(
            f"real mode with provider openai needs a key: set {KEY_VARIABLE} "
            "(any text will do for a server that checks none), or LLMSERVE_MODE=sim to simulate"
        )

    def prices(self) -> tuple[float, float]:
        """Dollars per million tokens, in and out; a model without a price is refused, because no cap could be kept."""
        price_in, price_out = prices_of(self.model, self.price_in_usd_per_million, self.price_out_usd_per_million)
        if self.provider == "vllm":
            price_in, price_out = price_in or 0.0, price_out or 0.0
        if price_in is None or price_out is None:
            raise ConfigError(
                f"the price of {self.model!r} is not known, so max_usd could not be kept: set "
                "LLMSERVE_REAL_PRICE_IN_USD_PER_MILLION and LLMSERVE_REAL_PRICE_OUT_USD_PER_MILLION (0 if it is free)"
            )
        return price_in, price_out
