"""Asking a policy for its wish, without trusting it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from llmserve_env.agents.agent import Agent, AgentView
from llmserve_env.engine.knobs import mapping_from_knobs
from llmserve_env.errors import LLMServeError


class PolicyError(LLMServeError):
    """The policy raised an error, or its answer is not a configuration."""


def ask(policy: Agent, view: AgentView, names: Collection[str]) -> dict[str, Any]:
    """What the policy wants of these knobs; a value it leaves open stays as it is."""
    try:
        knobs = np.asarray(policy.act(view), np.float64)
        if knobs.shape != view.knobs.shape:
            raise PolicyError(f"the policy answered values of shape {knobs.shape}; expected {view.knobs.shape}")
        wanted = mapping_from_knobs(np.where(np.isnan(knobs), view.knobs, knobs)[0].tolist())
    except PolicyError:
        raise
    except Exception as error:
        # A policy may be anybody's code: whatever it raises, the engine must keep a good configuration.
        raise PolicyError(f"the policy failed: {type(error).__name__}: {error}") from error
    return {name: wanted[name] for name in names if name in wanted}
