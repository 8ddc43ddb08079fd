"""Latency profiles: what an iteration costs on a GPU, from measurements. docs/profiles.md says how they came to be.

Start with `load_profile` (store), `Profile` (schema) and `predict` (prediction); `fit` turns timed iterations into a
profile, `composition` sums published kernel timings into one.
"""

from __future__ import annotations

from llmserve_env.profiles.errors import ProfileError
from llmserve_env.profiles.prediction import predict
from llmserve_env.profiles.schema import Profile
from llmserve_env.profiles.store import list_profiles, load_profile

__all__ = ["Profile", "ProfileError", "list_profiles", "load_profile", "predict"]
