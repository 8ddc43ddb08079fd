"""Gymnasium spaces of the control problem, and the decoding of their samples into knobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

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
ActionEncoding = Literal["discrete", "flat", "box"]


def observation_space(task: Task) -> spaces.Box:
    """Features of order one; see `env.features`."""
    return spaces.Box(-FEATURE_LIMIT, FEATURE_LIMIT, (len(features_of(task.action_knobs)),), np.float32)


class ActionCodec:
    """The Gymnasium actions of a task, and their decoding into the knob matrix.

    `discrete` actions name a level of every knob that the task offers (`MultiDiscrete`). `flat` actions number the
    combinations of levels of its active knobs (`Discrete`). `box` actions are one number
    in [-1, 1] per knob, spread over its range: knobs with a log scale by their logarithm, whole numbers by rounding,
    flags by sign. `levels` replaces the levels of the knobs it names.
    """

    def __init__(
        self,
        task: Task,
        encoding: ActionEncoding = "discrete",
        levels: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        if encoding not in get_args(ActionEncoding):
            raise ValueError(f"action encoding must be one of {', '.join(get_args(ActionEncoding))}; got {encoding!r}")
        self.encoding = encoding
        moving = [knob for knob in task.action_knobs if knob.name in task.knobs.active]
        self.knobs = tuple(moving) if encoding == "flat" else task.action_knobs
        self._defaults = task.default_knobs
        self._columns = np.array([knob.column for knob in self.knobs])
        chosen = [tuple((levels or {}).get(knob.name, knob.levels)) for knob in self.knobs]
        self._num_levels = np.array([len(values) for values in chosen])
        width = int(self._num_levels.max())
        self._levels = np.array([np.resize(values, width) for values in chosen], dtype=np.float64)

    @property
    def space(self) -> spaces.Space[Any]:
        """A new space of one episode's actions."""
        match self.encoding:
            case "discrete":
                return spaces.MultiDiscrete(self._num_levels)
            case "flat":
                return spaces.Discrete(int(np.prod(self._num_levels)))
            case _:
                return spaces.Box(-1.0, 1.0, (len(self.knobs),), np.float32)

    def decode(self, action: Array) -> Array:
        """The knob matrix of a batch of actions; an action outside its space is an InvalidActionError."""
        if self.encoding == "flat":
            action = self._unravelled(action)
        if action.shape[-1] != len(self.knobs):
            names = ", ".join(knob.name for knob in self.knobs)
            raise InvalidActionError(f"an action has {len(self.knobs)} entries ({names}); got {action.shape[-1]}")
        knobs: Array = np.empty((len(action), len(self._defaults)))
        if len(self.knobs) < len(self._defaults):
            knobs[:] = self._defaults
        if self.encoding == "box":
            self._decode_numbers(action, knobs)
        else:
            self._decode_levels(action, knobs)
        return knobs

    def _unravelled(self, action: Array) -> Array:
        """The levels that flat actions stand for; the last knob varies fastest."""
        count = int(np.prod(self._num_levels))
        if action.ndim != 1 or action.dtype.kind not in "iu" or not np.all((action >= 0) & (action < count)):
            raise InvalidActionError(f"a flat action is a whole number from 0 to {count - 1}; got {action.tolist()}")
        return np.stack(np.unravel_index(action, tuple(self._num_levels)), axis=1)

    def masks(self, current: Array, can_change: Array) -> Array:
        """Which levels would apply, shape (episodes, levels of all knobs) or, for flat actions, (episodes, actions).

        A knob that cannot change keeps its value: only its own level is marked, or all if its value is not a level,
        because none of them would do anything.
        """
        if self.encoding == "box":
            raise InvalidActionError("box actions cannot be masked; use action_encoding='discrete' or 'flat'")
        parts = []
        for i, column in enumerate(self._columns):
            levels = self._levels[i, : self._num_levels[i]]
            is_current = levels == current[:, column, None]
            has_level = is_current.any(axis=1, keepdims=True)
            parts.append(can_change[:, column, None] | is_current | ~has_level)
        if self.encoding == "discrete":
            return np.concatenate(parts, axis=1)
        combined: Array = parts[0]
        for part in parts[1:]:
            combined = (combined[:, :, None] & part[:, None, :]).reshape(len(part), -1)
        return combined

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
        at = np.minimum(np.floor(unit * len(knob.levels)), len(knob.levels) - 1)
        value = np.array(knob.levels)[at.astype(np.int64)]
    elif knob.scale == "log":
        value = knob.low * np.exp(unit * np.log(knob.high / knob.low))
    else:
        value = knob.low + unit * (knob.high - knob.low)
    return np.rint(value) if knob.kind == "int" else value
