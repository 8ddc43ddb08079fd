"""Errors of the server, and the table that maps errors to HTTP statuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from llmserve_env.client import UNKNOWN_TASK
from llmserve_env.engine.knobs import ALIASES, NAMES
from llmserve_env.env.episode import MAX_SEED
from llmserve_env.errors import (
    ConfigError,
    EpisodeStateError,
    InvalidActionError,
    InvalidLogError,
    LLMServeError,
    MissingCredentialError,
    ProviderError,
    ReferencesNotFoundError,
    UnknownTaskError,
    VersionMismatchError,
    WeightsNotFoundError,
)


class UnknownSessionError(LLMServeError):
    """No session has the requested id: it never existed, or it has expired."""


class StepConflictError(LLMServeError):
    """The step is not the next one of its session."""


class AmbiguousClientError(LLMServeError):
    """A call without a session id, where the server cannot tell which client sent it."""


class DamagedJournalError(LLMServeError):
    """The journal of a session lacks a step, so it cannot be replayed."""


class NotAllowedError(LLMServeError):
    """The operator does not allow this."""


class UnknownJobError(LLMServeError):
    """No job has the requested id."""


class StoreUnavailableError(LLMServeError):
    """The session store cannot be reached, read or written at the moment."""


class StoreBusyError(StoreUnavailableError):
    """Another program holds the session store's lock."""


class TooManyWaitingError(LLMServeError):
    """A client has more calls waiting than it may."""


class BusyError(LLMServeError):
    """An expensive call did not finish in time."""


MAX_PROBLEMS = 20
"""Mistakes of one request that are named in its answer."""
STATUS: dict[type[LLMServeError], int] = {
    UnknownSessionError: 404,
    UnknownJobError: 404,
    NotAllowedError: 403,
    EpisodeStateError: 409,
    StepConflictError: 409,
    AmbiguousClientError: 409,
    DamagedJournalError: 409,
    VersionMismatchError: 409,
    UnknownTaskError: 422,
    InvalidActionError: 422,
    InvalidLogError: 422,
    ConfigError: 422,
    ReferencesNotFoundError: 503,
    WeightsNotFoundError: 503,
    MissingCredentialError: 503,
    ProviderError: 503,
    StoreUnavailableError: 503,
    TooManyWaitingError: 429,
    BusyError: 503,
    LLMServeError: 400,
}
"""The nearest class in an error's method resolution order decides."""


def status_of(error: LLMServeError) -> int:
    """The HTTP status of an error."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def problem(error: dict[str, Any]) -> dict[str, Any]:
    """One validation problem: where, what is wrong, and what is allowed."""
    field = ".".join(str(part) for part in error["loc"] if part != "body")
    message = str(error["msg"])
    if error["type"] == "extra_forbidden" and "action" in error["loc"]:
        message = (
            f"unknown field {str(error['loc'][-1])[:80]!r}; allowed: {', '.join(NAMES)} (aliases: {', '.join(ALIASES)})"
        )
    if error["loc"] and error["loc"][-1] == "seed":
        message = f"The seed must be a whole number from 0 to {MAX_SEED}; got {error['input']!r:.80}"
    return {
        "loc": [str(part) for part in error["loc"]],
        "field": field[:200],
        "msg": message[:500],
        "type": error["type"],
    }


def problems(error: RequestValidationError | ValidationError) -> JSONResponse:
    """All validation problems of a request."""
    found = [problem(dict(one)) for one in error.errors()[:MAX_PROBLEMS]]
    return JSONResponse({"detail": found}, status_code=422)


def install(app: FastAPI, on_store_error: Callable[[], None] = lambda: None) -> None:
    """Turn every error of a route into JSON with a status; only a bug in the server is a 500."""

    @app.exception_handler(UnknownTaskError)
    async def unknown_task(_request: Request, error: UnknownTaskError) -> JSONResponse:
        found = {"loc": ["body", "task_id"], "field": "task_id", "msg": str(error)[:500], "type": UNKNOWN_TASK}
        return JSONResponse({"detail": [found]}, status_code=status_of(error))

    @app.exception_handler(LLMServeError)
    async def known(_request: Request, error: LLMServeError) -> JSONResponse:
        headers = {"Retry-After": "5"} if status_of(error) in (429, 503) else None
        if isinstance(error, StoreUnavailableError):
            on_store_error()
        return JSONResponse({"detail": str(error)}, status_code=status_of(error), headers=headers)

    @app.exception_handler(RequestValidationError)
    async def bad_request(_request: Request, error: RequestValidationError) -> JSONResponse:
        return problems(error)

    @app.exception_handler(ValidationError)
    async def bad_value(_request: Request, error: ValidationError) -> JSONResponse:
        return problems(error)

    @app.exception_handler(Exception)
    async def bug(_request: Request, _error: Exception) -> JSONResponse:
        # Starlette raises the error again, so the middleware logs it; an error of the middleware, uvicorn.
        return JSONResponse({"detail": "internal error; the server's log has the details"}, status_code=500)
