"""Replicas that a load needs, by the surrogate's constants: what the oracle and the critic know about the future."""

from __future__ import annotations

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.fluid.service import Flow
from llmserve_env.fleet.fluid.worlds import Worlds

GOOD_BATCH = 40.0
"""Requests per replica at which few promises are broken."""


def needs(worlds: Worlds, flow: Flow) -> dict[str, Array]:
    """[episode, window] by role: replicas that would run batches of `GOOD_BATCH`."""
    per_window, window_s = worlds.per_window, worlds.window_s
    history = per_window["prompt_tokens"] - per_window["new_prompt_tokens"]
    prefill = (flow.prompt_s * per_window["new_prompt_tokens"] + flow.history_s * history) / window_s
    decode = per_window["output_tokens"] / window_s * (flow.base_s / GOOD_BATCH + flow.per_running_s)
    return {"prefill": prefill, "decode": decode} if flow.is_split else {"any": prefill + decode}


def ahead(need: Array, rows: Array, window: int, length: int) -> Array:
    """[row, window ahead] of the episodes `rows`; after the end the last window goes on."""
    picked = np.minimum(window + np.arange(length), need.shape[1] - 1)
    return np.asarray(need[rows[:, None], picked[None, :]])
