"""A policy service: an agent behind HTTP, in any language.

    POST /reset  {"episode": "3f2a…", "task": {…}, "seed": 7}        any JSON object, or nothing
    POST /act    {"episode": "3f2a…", "observation": {…}}            {"action": {"batch_cap": 64}}

Episodes may be played side by side; `episode` tells them apart. Any status other than 2xx ends the evaluation.
"""

from __future__ import annotations

import uuid
from typing import Any

import httpx

from llmserve_env.errors import AgentError

TIMEOUT_S = 60.0


class HttpPolicy:
    """One episode of a policy service."""

    def __init__(self, url: str, client: httpx.Client) -> None:
        self._url = url.rstrip("/")
        self._http = client
        self._episode = ""

    def reset(self, task: dict[str, Any], seed: int) -> None:
        """Announce a new episode."""
        self._episode = uuid.uuid4().hex
        self._post("/reset", {"episode": self._episode, "task": task, "seed": seed})

    def act(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Ask for the knobs to change."""
        answer = self._post("/act", {"episode": self._episode, "observation": observation})
        action = answer.get("action") if isinstance(answer, dict) else None
        if not isinstance(action, dict):
            raise AgentError(f'{self._url}/act must answer {{"action": {{…}}}}; got {answer!r:.120}')
        return action

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        try:
            answer = self._http.post(self._url + path, json=body)
        except httpx.TimeoutException as error:
            raise AgentError(f"the policy service at {self._url}{path} gave no answer in {TIMEOUT_S:g} s") from error
        except httpx.HTTPError as error:
            raise AgentError(f"no answer from the policy service at {self._url}{path}: {error}") from error
        if not answer.is_success:
            raise AgentError(f"{self._url}{path} answered {answer.status_code}: {answer.text[:200]}")
        if not answer.content:
            return {}
        try:
            return answer.json()
        except (ValueError, RecursionError) as error:
            raise AgentError(f"{self._url}{path} did not answer with JSON: {answer.text[:120]!r}") from error
