"""A policy network in an ONNX file, played greedily: the observation vector in, a level of every knob out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from llmserve_env.agents.agent import AgentView
from llmserve_env.agents.policy_format import PolicyFormat
from llmserve_env.arrays import Array
from llmserve_env.env.spaces import ActionCodec
from llmserve_env.errors import ConfigError, EpisodeStateError, WeightsNotFoundError
from llmserve_env.tasks.task import Task


class OnnxAgent:
    """The first input takes features, shape (episodes, features).

    The first output is either whole numbers, a level per knob, or one number per level of every knob (logits), of
    which the largest is taken.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        if not path.is_file():
            raise WeightsNotFoundError(f"there is no file {path}; export a policy to it first")
        try:
            import onnxruntime
        except ModuleNotFoundError as error:
            raise ConfigError("an ONNX policy needs onnxruntime: pip install '.[onnx]'") from error
        self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0].name
        self._actions: ActionCodec | None = None
        self._num_levels: list[int] = []

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        self._actions = ActionCodec(task)
        self._num_levels = [len(levels) for levels in PolicyFormat().knob_levels(task)]
        width = self._session.get_inputs()[0].shape[-1]
        expected = len(PolicyFormat().feature_names(task))
        if isinstance(width, int) and width != expected:
            raise ConfigError(f"{self.name} takes {width} features; {task.id} has {expected}")

    def act(self, view: AgentView) -> Array:
        if self._actions is None or view.features is None:
            raise EpisodeStateError(f"{self.name} acts on the observation vector: reset it, and play in process")
        # One row at a time: a batched product rounds by batch size, and could flip a near tie.
        return self._actions.decode(np.concatenate([self._levels(row[None]) for row in view.features]))

    def _levels(self, row: Array) -> Array:
        out = np.asarray(self._session.run(None, {self._input: row.astype(np.float32)})[0])
        knobs, logits = len(self._num_levels), sum(self._num_levels)
        if out.dtype.kind in "iu" and out.shape == (1, knobs):
            return out.astype(np.int64)
        if out.shape == (1, logits):
            parts = np.split(out[0], np.cumsum(self._num_levels)[:-1])
            return np.array([[int(np.argmax(part)) for part in parts]])
        raise ConfigError(
            f"{self.name} returns {out.dtype} of shape {out.shape}; expected whole numbers of shape (1, {knobs}), "
            f"a level per knob, or (1, {logits}) logits"
        )
