"""`llm`: a language model chooses the knobs, through any OpenAI-compatible API."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np
import openai
from openai.types.chat import ChatCompletion

from llmserve_env.agents.agent import AgentView
from llmserve_env.agents.llm_answers import answer_text, parse_action
from llmserve_env.agents.llm_credentials import MISSING
from llmserve_env.agents.llm_prompt import TOOL_NAME, action_schema, system_prompt, tool_schema, user_prompt
from llmserve_env.agents.llm_settings import MAX_PROBLEMS, LlmSettings, LlmUsage
from llmserve_env.arrays import Array
from llmserve_env.errors import AgentError, InvalidActionError, MissingCredentialError
from llmserve_env.tasks.task import Task

MAX_CALLS_AT_ONCE = 16
MAX_QUOTED = 200
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
"""First and longest pause before a busy API is asked again; the pause doubles, unless the API names a time."""


class ModelCallError(AgentError):
    """The model's API did not answer, after the client's own retries."""


@dataclass(slots=True)
class _Player:
    """One episode: the windows seen so far, and what the model did in it."""

    history: deque[dict[str, Any]]
    usage: LlmUsage = field(default_factory=LlmUsage)


class LlmAgent:
    """Asks the model at temperature 0 for the knobs to change; an answer that is not an action is counted."""

    name = "llm"

    def __init__(self, settings: LlmSettings | None = None, wait: Callable[[float], None] = time.sleep) -> None:
        self.settings = settings or LlmSettings.from_environment()
        if not self.settings.api_key:
            raise MissingCredentialError(MISSING)
        self._client = openai.OpenAI(
            api_key=self.settings.api_key,
            base_url=self.settings.base_url,
            timeout=self.settings.timeout_s,
            max_retries=self.settings.max_retries,
        )
        self._wait = wait
        self._past = LlmUsage()
        self._system = ""
        self._players: list[_Player] = []

    @property
    def usage(self) -> LlmUsage:
        """What the model did in all episodes so far."""
        total = LlmUsage()
        for one in (self._past, *(player.usage for player in self._players)):
            total.add(one)
        return total

    @property
    def episode_usage(self) -> list[dict[str, int]]:
        """Counts of each episode since the last reset."""
        return [player.usage.counts() for player in self._players]

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        self._past = self.usage
        self._system = system_prompt(task)
        self._players = [_Player(deque(maxlen=self.settings.history_windows)) for _ in rngs]

    def act(self, view: AgentView) -> Array:
        for index, player in enumerate(self._players):
            player.history.append(view.observed(index))
            player.usage.last_error = None
        if view.step % self.settings.decide_every:
            return view.knobs.copy()
        with ThreadPoolExecutor(min(len(self._players), MAX_CALLS_AT_ONCE)) as pool:
            return np.array(list(pool.map(lambda i: self._decide(view, i), range(len(self._players)))))

    def _decide(self, view: AgentView, index: int) -> Array:
        """The knobs after the model's answer: its changes, or none if the answer is not an action."""
        usage, current = self._players[index].usage, view.knobs[index]
        answer = self._ask(view.task, self._players[index])
        try:
            knobs = parse_action(answer, view.task, current)
        except InvalidActionError as error:
            usage.unparsable += 1
            usage.last_error = f"unparsable answer: {error}"
            if len(usage.problems) < MAX_PROBLEMS:
                usage.problems.append(f"{error}: {(answer or '')[-MAX_QUOTED:]!r}")
            self._check_share(view.task, usage)
            return np.array(current)
        usage.decisions += 1
        return knobs

    def _check_share(self, task: Task, usage: LlmUsage) -> None:
        """Fail the episode once too many of its answers are not actions: its score would not be the model's."""
        questions = ceil(task.steps / self.settings.decide_every)
        allowed = self.settings.max_unusable_share * questions
        if usage.unparsable > allowed:
            raise AgentError(
                f"{self.settings.model}: {usage.unparsable} of {usage.calls} answers on {task.id} were not actions; at "
                f"most {self.settings.max_unusable_share:.0%} of the episode's {questions} may be unusable, so there "
                f"is no score. The last one: {usage.problems[-1]}"
            )

    def _ask(self, task: Task, player: _Player) -> str | None:
        reply = self._completion(task, player, self.settings.max_repeated_refusals)
        player.usage.add_call(reply.usage)
        return answer_text(reply)

    def _completion(self, task: Task, player: _Player, repeats: int) -> Any:
        """The API's reply; a busy API is asked again up to `repeats` times."""
        for i in range(repeats + 1):
            try:
                return self._checked(self._create(task, player))
            except openai.RateLimitError as error:
                if i == repeats or error.code == "insufficient_quota":
                    raise self._failed(error) from error
                self._wait(_pause_s(error, i))
            except openai.OpenAIError as error:
                raise self._failed(error) from error
            except ValueError as error:
                raise self._no_completion("a body that is no JSON") from error
        raise AssertionError("the last call returns or raises")

    def _create(self, task: Task, player: _Player) -> Any:
        return self._client.chat.completions.create(
            model=self.settings.model,
            messages=[
                {"role": "system", "content": self._system},
                {"role": "user", "content": user_prompt(player.history)},
            ],
            temperature=0.0,
            max_completion_tokens=self.settings.max_answer_tokens,
            **self._form(task),
        )

    def _checked(self, reply: Any) -> Any:
        """The reply, if it is a chat completion: another server, or one that only streams, may say 200 to anything."""
        if not isinstance(reply, ChatCompletion):
            raise self._no_completion(f"{reply!r:.{MAX_QUOTED}}")
        error = (reply.model_extra or {}).get("error")
        if error and not reply.choices:
            raise self._no_completion(f"the error {error!r:.{MAX_QUOTED}}")
        return reply

    def _no_completion(self, answered: str) -> ModelCallError:
        return ModelCallError(
            f"{self.settings.model} did not answer: its API said 200 with {answered}, which is no chat completion; "
            "check that the base URL is that of an OpenAI-compatible API and ends as it asks for, most often in /v1"
        )

    def _failed(self, error: openai.OpenAIError) -> ModelCallError:
        return ModelCallError(f"{self.settings.model} did not answer: {error}")

    def _form(self, task: Task) -> dict[str, Any]:
        """The options of a request that ask for the answer in the configured form."""
        match self.settings.answers:
            case "json":
                schema = {"name": "serve_action", "strict": True, "schema": action_schema(task)}
                return {"response_format": {"type": "json_schema", "json_schema": schema}}
            case "tool":
                choice = {"type": "function", "function": {"name": TOOL_NAME}}
                return {"tools": [tool_schema(task)], "tool_choice": choice}
            case _:
                return {}


def _pause_s(error: openai.RateLimitError, repeat: int) -> float:
    """Seconds until the next call: what the API asks for, within limits, or twice the last pause."""
    try:
        asked_s = float(error.response.headers.get("retry-after", ""))
    except ValueError:
        asked_s = FIRST_PAUSE_S * 2.0**repeat
    return min(max(asked_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
