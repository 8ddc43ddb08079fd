"""What rules read, for a batch of episodes side by side: columns of shape [episode, 1].

Replicas that scale together form a group: the whole fleet, or the prefill or the decode replicas of a split one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array

SIGNALS = (
    "request_rps",
    "prompt_tps",
    "new_prompt_tps",
    "output_tps",
    "session_start_rps",
    "open_sessions",
    "running",
)
"""Figures of an observation that say how much work there is or will be."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The figures of one observation that concern a group of replicas."""

    step_s: float
    """Time between two decisions."""
    usual: float
    """Replicas of the group at the task's mean load."""
    ordered: Array
    """Replicas that the rule asked for last."""
    ready: Array
    """Replicas in service."""
    pending: Array
    """Replicas that boot or wake up."""
    limit: Array
    """Most replicas that the group may have."""
    waiting: Array
    """Requests in the queues."""
    running: Array
    """Requests in the batches."""
    kv_use: Array
    """Share of the KV cache in use, mean over the replicas in service."""
    prompt_tps: Array
    """Prompt tokens per second that no earlier turn has sent: those that no cache can hold."""
    output_tps: Array
    """Tokens generated per second."""
    signals: dict[str, Array]
    """`SIGNALS`, each relative to its usual value."""
    future: Array | None = None
    """[episode, window ahead]: loads to come, in replicas at full use; for the oracle alone."""

    @property
    def serving(self) -> Array:
        """Replicas in service, at least one, to divide by."""
        return np.maximum(self.ready, 1.0)


def steps(window_s: Array, reading: Reading) -> Array:
    """How many readings a window of time holds, at least the latest one."""
    return np.maximum(np.round(window_s / reading.step_s), 1.0)
