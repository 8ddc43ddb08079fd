"""InferenceGym, the plan's name for LLMServeEnv: everything here is `llmserve_env` under another name."""

from __future__ import annotations

from typing import Any

import llmserve_env
from llmserve_env import __all__  # noqa: F401 - the same names are public


def __getattr__(name: str) -> Any:
    return getattr(llmserve_env, name)
