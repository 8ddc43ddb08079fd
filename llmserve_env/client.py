"""Clients of the server: `LLMServeEnv` over HTTP, `LLMServeWSEnv` over OpenEnv's WebSocket.

env = LLMServeEnv.from_url("http://localhost:7860")
observation = env.reset(task_id="static_workload", seed=42)
while not observation.done:
    observation, reward, done, info = env.step({"batch_cap": 96})
print(env.grade().score)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import httpx
from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from pydantic import ValidationError

from llmserve_env.errors import EpisodeStateError, InvalidActionError, ServerError, UnknownTaskError
from llmserve_env.models import EpisodeLog, GradeReport, ServeAction, ServeObservation, ServeState

DEFAULT_TIMEOUT_S = 60.0
DEFAULT_SEED = 42
UNKNOWN_TASK = "unknown_task"
"""Type of the problem that the server reports for a task it does not know."""
NO_SUCH_PATH = '{"detail":"Not Found"}'
"""What a server of this kind says of a path that it does not have; our own answers name what is missing."""
Step = tuple[ServeObservation, float, bool, dict[str, Any]]


def checked_action(action: ServeAction | Mapping[str, Any]) -> ServeAction:
    """The action, validated before it travels; InvalidActionError names the field and its range."""
    if isinstance(action, ServeAction):
        return action
    try:
        checked: ServeAction = ServeAction.model_validate(dict(action))
    except ValidationError as error:
        found = [_problem(dict(one)) for one in error.errors()]
        raise InvalidActionError("; ".join(found)) from error
    return checked


def _problem(error: dict[str, Any]) -> str:
    message, name = str(error["msg"]), str(error["loc"][-1])
    return message if name in message else f"{name}: {message}"


def observation_of(payload: Mapping[str, Any]) -> ServeObservation:
    """An observation from an answer that carries reward and done beside it."""
    fields = {**payload["observation"], "reward": payload["reward"], "done": payload["done"]}
    observation: ServeObservation = ServeObservation.model_validate(fields)
    return observation


class LLMServeEnv:
    """One session of a server at a time, over HTTP; sessions survive a restart of the server."""

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._http = httpx.Client(
            base_url=base_url.rstrip("/"), headers=headers, timeout=timeout_s, transport=transport
        )
        self.session_id: str | None = None
        self._step_index = 0

    @classmethod
    def from_url(cls, base_url: str, **options: Any) -> Self:
        """A client of the server at this address."""
        return cls(base_url, **options)

    @classmethod
    def from_hub(cls, space: str, token: str | None = None, **options: Any) -> Self:
        """A client of a Hugging Face Space such as `org/name`; private ones need a token."""
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", space):
            raise ValueError(f"a Space is named owner/name; got {space!r}")
        host = re.sub(r"[^a-z0-9]+", "-", space.lower()).strip("-")
        headers = {"Authorization": f"Bearer {token}"} if token else None
        return cls(f"https://{host}.hf.space", headers=headers, **options)

    def reset(
        self,
        task_id: str | int = "static_workload",
        seed: int | None = DEFAULT_SEED,
        config: Mapping[str, Any] | None = None,
        episode_id: str | None = None,
    ) -> ServeObservation:
        """Open a session; with `seed=None` the server draws one.

        `config={"reward_weights": {...}}`, or `{"alpha": ..., "beta": ...}`, replaces some of the task's weights.
        """
        asked: dict[str, Any] = {"task_id": task_id, "seed": seed, "config": dict(config or {})}
        if episode_id is not None:
            asked["episode_id"] = episode_id
        answer = self._call("POST", "/reset", asked)
        self.session_id, self._step_index = answer["session_id"], 0
        return observation_of(answer)

    def step(self, action: ServeAction | Mapping[str, Any]) -> Step:
        """Serve one window: (observation, reward, done, info)."""
        checked = checked_action(action)
        body = {
            "session_id": self._session(),
            "action": checked.model_dump(exclude_unset=True),
            "step_index": self._step_index + 1,
        }
        answer = self._call("POST", "/step", body)
        self._step_index += 1
        observation = observation_of(answer)
        return observation, float(answer["reward"]), observation.done, answer["info"]

    def attach(self, session_id: str) -> ServeState:
        """Continue a session that was opened elsewhere or before a restart."""
        self.session_id = session_id
        state = self.state()
        self._step_index = state.step_count
        return state

    def state(self) -> ServeState:
        """The state of the episode."""
        answer = self._call("GET", "/state", params={"session_id": self._session()})
        state: ServeState = ServeState.model_validate(answer)
        return state

    def grade(self) -> GradeReport:
        """The grade of the episode, with its breakdown and feedback."""
        return GradeReport.model_validate(self._call("POST", "/grader", {"session_id": self._session()}))

    def log(self) -> EpisodeLog:
        """The log, with everything needed to replay the episode."""
        return EpisodeLog.model_validate(self._call("GET", "/log", params={"session_id": self._session()}))

    def tasks(self) -> list[dict[str, Any]]:
        """The server's tasks."""
        found: list[dict[str, Any]] = self._call("GET", "/tasks")["tasks"]
        return found

    def close(self) -> None:
        """Close the connections; the session stays on the server."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _session(self) -> str:
        if self.session_id is None:
            raise EpisodeStateError("reset the environment before its first step")
        return self.session_id

    def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, params: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        try:
            answer = self._http.request(method, path, json=body, params=params)
        except httpx.HTTPError as error:
            raise ServerError(f"no answer from {self._http.base_url}{path}: {error}") from error
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        # Our own 404 says which session is unknown; this is what a server says of a path that it does not have.
        if (answer.is_success and not is_json) or (answer.status_code == 404 and NO_SUCH_PATH in answer.text):
            raise ServerError(
                f"{answer.url} answered {answer.status_code}, but not as an LLMServeEnv server does; give the address "
                "of one, without a path such as /web",
                answer.status_code,
            )
        if answer.is_success:
            found: dict[str, Any] = answer.json()
            return found
        raise _refusal(path, answer)


def _refusal(path: str, answer: httpx.Response) -> Exception:
    """The server's message as the exception that the same mistake raises in process."""
    is_json = answer.headers.get("content-type", "").startswith("application/json")
    detail = answer.json().get("detail", "") if is_json else answer.text[:200]
    if isinstance(detail, list):
        if any(problem.get("type") == UNKNOWN_TASK for problem in detail):
            return UnknownTaskError("; ".join(str(problem.get("msg", "")) for problem in detail))
        detail = "; ".join(f"{problem.get('field', '')}: {problem.get('msg', '')}" for problem in detail)
    if answer.status_code == 422 and path == "/step":
        return InvalidActionError(detail)
    if answer.status_code in (404, 409):
        return EpisodeStateError(detail)
    return ServerError(f"{answer.status_code} from {path}: {detail}", answer.status_code)


class LLMServeWSEnv(EnvClient[ServeAction, ServeObservation, ServeState]):
    """OpenEnv's own client, typed: a session per WebSocket. Asynchronous; `.sync()` gives a blocking client."""

    def _step_payload(self, action: ServeAction | Mapping[str, Any]) -> dict[str, Any]:
        payload: dict[str, Any] = checked_action(action).model_dump(exclude_unset=True)
        return payload

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[ServeObservation]:
        observation = observation_of(payload)
        return StepResult(
            observation=observation, reward=observation.reward, done=observation.done, metadata=observation.metadata
        )

    def _parse_state(self, payload: dict[str, Any]) -> ServeState:
        state: ServeState = ServeState.model_validate(payload)
        return state


# The names OpenEnv's AutoEnv and AutoAction derive from the name of the package.
LlmserveEnv = LLMServeWSEnv
LlmserveAction = ServeAction
LlmserveObservation = ServeObservation
