"""Gymnasium spaces of the control problem, and the way from their samples to knobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import Knob
from llmserve_env.env.features import features_of
from llmserve_env.env.kernels import look_up_levels
from llmserve_env.errors import InvalidActionError
from llmserve_env.tasks.task import Task

FEATURE_LIMIT = 8.0
"""No feature reaches this: logs of a day's wait or a million requests stay below."""
ActionEncoding = Literal["discrete", "box"]


def observation_space(task: Task) -> spaces.Box:
    """Features of order one; see `env.features`."""
    return spaces.Box(-FEATURE_LIMIT, FEATURE_LIMIT, (len(features_of(task.action_knobs)),), np.float32)


class ActionCodec:
    """The Gymnasium actions of a task, and the knob matrix they stand for.

    `discrete` actions name a level of every knob that the task offers (`MultiDiscrete`). `box` actions are one number
    in [-1, 1] per knob, spread over its range: knobs with a log scale by their logarithm, whole numbers by rounding,
    flags by sign. `levels` replaces the levels of the knobs it names.
    """

    def __init__(
        self,
        task: Task,
        encoding: ActionEncoding = "discrete",
        levels: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        if encoding not in ("discrete", "box"):
            raise ValueError(f"action encoding must be 'discrete' or 'box'; got {encoding!r}")
        self.encoding = encoding
        self.knobs = task.action_knobs
        self._defaults = task.default_knobs
        self._columns = np.array([knob.column for knob in self.knobs])
        chosen = [tuple((levels or {}).get(knob.name, knob.levels)) for knob in self.knobs]
        self._num_levels = np.array([len(values) for values in chosen])
        width = int(self._num_levels.max())
        self._levels = np.array([np.resize(values, width) for values in chosen], dtype=np.float64)

    @property
    def space(self) -> spaces.Space[Any]:
        """A new space of one episode's actions."""
        if self.encoding == "discrete":
            return spaces.MultiDiscrete(self._num_levels)
        return spaces.Box(-1.0, 1.0, (len(self.knobs),), np.float32)

    def decode(self, action: Array) -> Array:
        """The knob matrix of a batch of actions; an action outside its space is an InvalidActionError."""
        if action.shape[-1] != len(self.knobs):
            names = ", ".join(knob.name for knob in self.knobs)
            raise InvalidActionError(f"an action has {len(self.knobs)} entries ({names}); got {action.shape[-1]}")
        knobs: Array = np.empty((len(action), len(self._defaults)))
        if len(self.knobs) < len(self._defaults):
            knobs[:] = self._defaults
        if self.encoding == "discrete":
            self._decode_levels(action, knobs)
        else:
            self._decode_numbers(action, knobs)
        return knobs

    def _decode_levels(self, action: Array, knobs: Array) -> None:
        if action.dtype.kind not in "iu" or not look_up_levels(
            action.astype(np.int64), self._num_levels, self._levels, self._columns, knobs
        ):
            raise InvalidActionError(
                f"a discrete action has whole numbers from 0 to below {self._num_levels.tolist()}; "
                f"got {action.tolist()}"
            )

    def _decode_numbers(self, action: Array, knobs: Array) -> None:
        if not np.all(np.abs(action) <= 1.0):
            raise InvalidActionError("a box action has finite numbers in [-1, 1]; clip yours before stepping")
        unit = (action.astype(np.float64) + 1.0) / 2.0
        for i, knob in enumerate(self.knobs):
            knobs[:, knob.column] = action[:, i] > 0.0 if knob.kind == "bool" else _spread(knob, unit[:, i])


def _spread(knob: Knob, unit: Array) -> Array:
    """Values of a knob for numbers in [0, 1]."""
    value: Array
    if knob.kind == "tier":
        value = np.minimum(np.floor(unit * len(knob.levels)), len(knob.levels) - 1)
    elif knob.scale == "log":
        value = knob.low * np.exp(unit * np.log(knob.high / knob.low))
    else:
        value = knob.low + unit * (knob.high - knob.low)
    return np.rint(value) if knob.kind == "int" else value
