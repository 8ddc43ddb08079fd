"""Latency profiles: what an iteration costs on a GPU. docs/profiles.md describes how they are made.

Start with `load_profile` (store), `Profile` (schema) and `predict` (prediction); `measured` fits timed iterations,
`composing` sums published kernel timings. Names load lazily: `architectures` alone needs no pydantic.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmserve_env.errors import ProfileError
    from llmserve_env.profiles.prediction import predict
    from llmserve_env.profiles.schema import Profile
    from llmserve_env.profiles.store import list_profiles, load_profile

__all__ = ["Profile", "ProfileError", "list_profiles", "load_profile", "predict"]

_HOMES = {
    "Profile": "llmserve_env.profiles.schema",
    "ProfileError": "llmserve_env.errors",
    "list_profiles": "llmserve_env.profiles.store",
    "load_profile": "llmserve_env.profiles.store",
    "predict": "llmserve_env.profiles.prediction",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
