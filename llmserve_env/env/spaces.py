"""Gymnasium spaces of the control problem, and the way from their samples to knobs."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import KNOBS
from llmserve_env.env.features import NUM_FEATURES
from llmserve_env.env.kernels import look_up_levels
from llmserve_env.errors import InvalidActionError

FEATURE_LIMIT = 8.0
"""No feature reaches this: logs of a day's wait or a million requests stay below."""
ActionEncoding = Literal["discrete", "box"]
_NUM_LEVELS = np.array([len(knob.levels) for knob in KNOBS])
_LEVELS = np.array([np.resize(knob.levels, _NUM_LEVELS.max()) for knob in KNOBS], dtype=np.float64)
_LOG_MAX_BATCH = np.log(KNOBS[0].high)


def observation_space() -> spaces.Box:
    """Features of order one; see `env.features`."""
    return spaces.Box(-FEATURE_LIMIT, FEATURE_LIMIT, (NUM_FEATURES,), np.float32)


def action_space(encoding: ActionEncoding) -> spaces.Space[Any]:
    """`discrete`: a level per knob (MultiDiscrete). `box`: six numbers in [-1, 1] over the full ranges."""
    if encoding == "discrete":
        return spaces.MultiDiscrete(_NUM_LEVELS)
    if encoding == "box":
        return spaces.Box(-1.0, 1.0, (len(KNOBS),), np.float32)
    raise ValueError(f"action encoding must be 'discrete' or 'box'; got {encoding!r}")


def decode_discrete(action: Array) -> Array:
    """Knobs of level indices, shape (episodes, 6)."""
    knobs: Array = np.empty(action.shape)
    if action.dtype.kind not in "iu" or not look_up_levels(action.astype(np.int64), _NUM_LEVELS, _LEVELS, knobs):
        raise InvalidActionError(
            f"a discrete action has six whole numbers below {_NUM_LEVELS.tolist()}; got {action.tolist()}"
        )
    return knobs


def decode_box(action: Array) -> Array:
    """Knobs of numbers in [-1, 1]: the batch cap on a log scale, whole numbers by rounding, flags by sign."""
    if not np.all(np.abs(action) <= 1.0):
        raise InvalidActionError("a box action has six finite numbers in [-1, 1]; clip yours before stepping")
    unit = (action.astype(np.float64) + 1.0) / 2.0
    knobs = np.empty_like(unit)
    knobs[:, 0] = np.rint(np.exp(unit[:, 0] * _LOG_MAX_BATCH))
    knobs[:, 1] = KNOBS[1].low + unit[:, 1] * (KNOBS[1].high - KNOBS[1].low)
    knobs[:, 2] = np.rint(unit[:, 2] * KNOBS[2].high)
    knobs[:, 3] = np.minimum(np.floor(unit[:, 3] * 3.0), 2.0)
    knobs[:, 4:] = action[:, 4:] > 0.0
    return knobs


def decode(encoding: ActionEncoding, action: Array) -> Array:
    """Knobs of a batch of actions in the given encoding; an action outside its space is refused."""
    if action.shape[-1] != len(KNOBS):
        raise InvalidActionError(
            f"an action has {len(KNOBS)} entries ({', '.join(k.name for k in KNOBS)}); got {action.shape[-1]}"
        )
    return decode_discrete(action) if encoding == "discrete" else decode_box(action)
