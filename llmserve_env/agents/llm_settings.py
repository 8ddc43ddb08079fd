"""Which language model plays and how it is asked, and what it did and used."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from llmserve_env.agents.llm_credentials import credentials_from
from llmserve_env.errors import ConfigError
from llmserve_env.llm_prices import DEFAULT_MODEL, prices_of

AnswerForm = Literal["json", "tool", "text"]
ANSWER_FORMS: tuple[str, ...] = get_args(AnswerForm)
MAX_PROBLEMS = 5
"""Unusable answers that a report quotes."""
MAX_CALL_TOKENS = 1_000_000
"""A question and its answer have thousands of tokens; an API that reports more than this is wrong or lies."""


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """Which model acts, where it lives and how often it is asked."""

    model: str = DEFAULT_MODEL
    base_url: str | None = None
    api_key: str | None = None
    decide_every: int = 1
    """Windows per question; the answer stays in force between."""
    history_windows: int = 5
    """Windows that a question shows."""
    max_answer_tokens: int = 1024
    """Tokens of an answer, reasoning included."""
    answers: AnswerForm = "json"
    """How answers are asked for: as JSON by schema, as a call of a tool, or as text that ends with JSON."""
    max_unusable_share: float = 0.2
    """Share of an episode's answers that may be no action; beyond it the episode fails instead of being scored."""
    timeout_s: float = 60.0
    max_retries: int = 5
    """Times that the client repeats a call after a refusal such as 429, or no answer."""
    max_repeated_refusals: int = 0
    """Times that a call is repeated because the API was busy (429) and nothing else: such a call was never made."""
    price_in_usd_per_million: float | None = None
    price_out_usd_per_million: float | None = None

    def __post_init__(self) -> None:
        at_least_one = ("decide_every", "history_windows", "max_answer_tokens")
        for name in at_least_one:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1; got {getattr(self, name)}")
        if not 0.0 <= self.max_unusable_share <= 1.0:
            raise ConfigError(f"max_unusable_share must be from 0 to 1; got {self.max_unusable_share}")
        if self.answers not in ANSWER_FORMS:
            raise ConfigError(f"answers must be one of {', '.join(ANSWER_FORMS)}; got {self.answers!r}")

    @classmethod
    def from_environment(cls, **overrides: Any) -> LlmSettings:
        """Settings from MODEL_NAME, API_BASE_URL and the key variables, unless given."""
        given = {name: value for name, value in overrides.items() if value is not None}
        credentials = credentials_from(os.environ)
        found = {
            "model": os.environ.get("MODEL_NAME") or DEFAULT_MODEL,
            "base_url": credentials.base_url,
            "api_key": credentials.api_key,
        }
        return cls(**{**found, **given})


@dataclass(slots=True)
class LlmUsage:
    """What the model did and used."""

    calls: int = 0
    decisions: int = 0
    """Answers that were actions."""
    unparsable: int = 0
    """Answers that were not actions, and changed nothing."""
    calls_without_usage: int = 0
    """Calls whose tokens the API did not report, or not believably: they are not in the sums below."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    last_error: str | None = None
    problems: list[str] = field(default_factory=list)
    """The first few unusable answers, and why."""

    def add_call(self, reported: Any) -> None:
        """Count a call and the tokens that the API reports for it."""
        self.calls += 1
        # The client does not validate answers, so anything may be here.
        tokens: list[Any] = [getattr(reported, name, None) for name in ("prompt_tokens", "completion_tokens")]
        if all(type(count) is int and 0 <= count <= MAX_CALL_TOKENS for count in tokens):
            self.prompt_tokens += tokens[0]
            self.completion_tokens += tokens[1]
        else:
            self.calls_without_usage += 1

    def add(self, other: LlmUsage) -> None:
        """Add what another episode used."""
        for name in ("calls", "decisions", "unparsable", "calls_without_usage", "prompt_tokens", "completion_tokens"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.last_error = other.last_error
        self.problems = [*self.problems, *other.problems][:MAX_PROBLEMS]

    def counts(self) -> dict[str, int]:
        """The numbers alone."""
        return {
            "calls": self.calls,
            "decisions": self.decisions,
            "unparsable_answers": self.unparsable,
            "calls_without_usage": self.calls_without_usage,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
        }

    def cost_usd(self, settings: LlmSettings) -> float | None:
        """Price of the reported tokens; None where the model's prices are not known."""
        price_in, price_out = prices_of(
            settings.model, settings.price_in_usd_per_million, settings.price_out_usd_per_million
        )
        if price_in is None or price_out is None:
            return None
        return (self.prompt_tokens * price_in + self.completion_tokens * price_out) / 1e6

    def report(self, settings: LlmSettings | None) -> dict[str, Any]:
        """For JSON reports."""
        settings = settings or LlmSettings.from_environment()
        return {
            "model": settings.model,
            **self.counts(),
            "cost_usd": self.cost_usd(settings),
            "problems": self.problems,
        }
