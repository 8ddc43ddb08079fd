"""`llm`: a language model chooses the knobs, through any OpenAI-compatible API."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import openai
from openai.types.shared_params.response_format_json_schema import JSONSchema

from llmserve_env.agents.agent import AgentView
from llmserve_env.agents.llm_prompt import action_schema, observation_text, parse_action, system_prompt, user_prompt
from llmserve_env.arrays import Array
from llmserve_env.errors import InvalidActionError, LLMServeError, MissingCredentialError
from llmserve_env.llm_prices import DEFAULT_MODEL, prices_of
from llmserve_env.tasks.task import Task

KEY_VARIABLES = ("OPENAI_API_KEY", "HF_TOKEN", "API_KEY")
HISTORY_WINDOWS = 5
MAX_ANSWER_TOKENS = 200


class ModelCallError(LLMServeError):
    """The model's API did not answer, after the client's own retries."""


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """Which model acts, where it lives and how often it is asked."""

    model: str = DEFAULT_MODEL
    base_url: str | None = None
    api_key: str | None = None
    decide_every: int = 1
    """Windows per question; the answer stays in force between."""
    timeout_s: float = 60.0
    price_in_usd_per_million: float | None = None
    price_out_usd_per_million: float | None = None

    @classmethod
    def from_environment(cls, **overrides: Any) -> LlmSettings:
        """Settings from MODEL_NAME, API_BASE_URL and the key variables, unless given."""
        given = {name: value for name, value in overrides.items() if value is not None}
        found = {
            "model": os.environ.get("MODEL_NAME") or DEFAULT_MODEL,
            "base_url": os.environ.get("API_BASE_URL"),
            "api_key": next(filter(None, map(os.environ.get, KEY_VARIABLES)), None),
        }
        return cls(**{**found, **given})


@dataclass(slots=True)
class LlmUsage:
    """What the model did and used."""

    calls: int = 0
    unparsable: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    last_error: str | None = None
    problems: list[str] = field(default_factory=list)
    """The first few unparsable answers, and why."""

    def cost_usd(self, settings: LlmSettings) -> float | None:
        """Price of the tokens; None where the model's prices are not known."""
        price_in, price_out = prices_of(
            settings.model, settings.price_in_usd_per_million, settings.price_out_usd_per_million
        )
        if price_in is None or price_out is None:
            return None
        return (self.prompt_tokens * price_in + self.completion_tokens * price_out) / 1e6

    def report(self, settings: LlmSettings) -> dict[str, Any]:
        """For JSON reports."""
        return {
            "model": settings.model,
            "calls": self.calls,
            "unparsable_answers": self.unparsable,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cost_usd": self.cost_usd(settings),
            "problems": self.problems,
        }


class LlmAgent:
    """Asks the model at temperature 0 for a JSON action; an unusable answer changes nothing and is counted."""

    name = "llm"

    def __init__(self, settings: LlmSettings | None = None) -> None:
        self.settings = settings or LlmSettings.from_environment()
        if not self.settings.api_key:
            raise MissingCredentialError(
                f"the llm agent needs a key: set {KEY_VARIABLES[0]} (or {' or '.join(KEY_VARIABLES[1:])}), "
                "and API_BASE_URL for another provider; any text will do for a server that checks none"
            )
        self._client = openai.OpenAI(
            api_key=self.settings.api_key, base_url=self.settings.base_url, timeout=self.settings.timeout_s
        )
        self.usage = LlmUsage()
        self._system = ""
        self._history: list[deque[str]] = []

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        self._system = system_prompt(task)
        self._history = [deque(maxlen=HISTORY_WINDOWS) for _ in rngs]

    def act(self, view: AgentView) -> Array:
        for e, history in enumerate(self._history):
            history.append(observation_text(view.task, view.step, view.metrics[e], view.knobs[e]))
        self.usage.last_error = None
        if view.step % self.settings.decide_every:
            return view.knobs.copy()
        return np.array([self._ask(view.task, view.knobs[e], history) for e, history in enumerate(self._history)])

    def _ask(self, task: Task, current: Array, history: deque[str]) -> Array:
        answer = self._complete(user_prompt(history), action_schema(task))
        try:
            return parse_action(answer, task)
        except InvalidActionError as error:
            self.usage.unparsable += 1
            self.usage.last_error = f"unparsable answer: {error}"
            if len(self.usage.problems) < HISTORY_WINDOWS:
                self.usage.problems.append(f"{error}: {(answer or '')[:200]!r}")
            return current.copy()

    def _complete(self, user: str, action: dict[str, Any]) -> str | None:
        schema: JSONSchema = {"name": "serve_action", "strict": True, "schema": action}
        try:
            reply = self._client.chat.completions.create(
                model=self.settings.model,
                messages=[{"role": "system", "content": self._system}, {"role": "user", "content": user}],
                response_format={"type": "json_schema", "json_schema": schema},
                temperature=0.0,
                max_completion_tokens=MAX_ANSWER_TOKENS,
            )
        except openai.OpenAIError as error:
            raise ModelCallError(f"{self.settings.model} did not answer: {error}") from error
        self.usage.calls += 1
        if reply.usage is not None:
            self.usage.prompt_tokens += reply.usage.prompt_tokens
            self.usage.completion_tokens += reply.usage.completion_tokens
        return reply.choices[0].message.content if reply.choices else None
