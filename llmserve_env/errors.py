"""Every exception the library raises on purpose.

    LLMServeError
    ├── ConfigError              a task, deployment or setting that makes no sense
    ├── UnknownTaskError         no task of that id
    ├── InvalidActionError       a knob unknown, out of range or of the wrong type
    ├── AgentError               an agent cannot go on: its service or model does not answer, or not with decisions
    ├── EpisodeStateError        a step before reset, or after the end
    ├── InvalidLogError          an episode log that no episode could have produced
    ├── TraceFormatError         a request log that cannot be read
    ├── ProfileError             a latency profile that is missing or physically impossible
    ├── WeightsNotFoundError     no trained policy for that task
    ├── ReferencesNotFoundError  no frozen scale to grade that task on
    ├── VersionMismatchError     a log, policy or reference made by another version
    ├── MissingCredentialError   a provider needs a key that is not set
    ├── ProviderError            a real engine cannot be reached, or refuses us
    ├── ServerError              the server refused a request or could not be reached
    └── InvariantViolation       a law of the simulator is broken: our bug, never caught

A message names the value, what is allowed, and what to do about it. Only `cli/` exits, and only the server turns
these into HTTP statuses.
"""

from __future__ import annotations


class LLMServeError(Exception):
    """Base of every error below: catch this one to catch them all."""


class ConfigError(LLMServeError):
    """A task, deployment or setting is inconsistent or out of range."""


class UnknownTaskError(LLMServeError):
    """No task has the requested id."""


class InvalidActionError(LLMServeError):
    """An action has an unknown knob, a value out of range or a value of the wrong type."""


class AgentError(LLMServeError):
    """An agent cannot go on: its service or model does not answer, or too few of the answers are decisions."""


class EpisodeStateError(LLMServeError):
    """The episode cannot do this now: it has not been reset, or it is over."""


class InvalidLogError(LLMServeError):
    """A log is not what an episode of its task produces: other rewards, values out of range, too many steps."""


class TraceFormatError(LLMServeError):
    """A request log cannot be read as the format it claims to be."""


class ProfileError(LLMServeError):
    """A latency profile is missing, malformed or physically impossible."""


class WeightsNotFoundError(LLMServeError):
    """No trained policy is stored for the requested task."""


class ReferencesNotFoundError(LLMServeError):
    """The two ends of a task's score are not frozen, so it cannot be graded."""


class VersionMismatchError(LLMServeError):
    """A log, policy or reference belongs to another version of the environment."""


class MissingCredentialError(LLMServeError):
    """A provider needs a key that the environment does not hold."""


class ProviderError(LLMServeError):
    """A real engine cannot be reached, refuses our key or model, or answers with nonsense."""


class ServerError(LLMServeError):
    """The server refused a request, or could not be reached; `status` is the HTTP status, 0 without an answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class InvariantViolation(LLMServeError):  # noqa: N818 - a broken law is named for the law, not for an error of the user
    """A numbered law of `docs/invariants.md` does not hold: a bug of the simulator, to be reported and never caught."""
