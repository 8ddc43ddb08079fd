"""The episode loop: replay, knob mappings, errors."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from llmserve_env.engine.knobs import knobs_from_mapping, mapping_from_knobs
from llmserve_env.env.episode import Episode, replay
from llmserve_env.env.spaces import ActionCodec
from llmserve_env.errors import EpisodeStateError, InvalidActionError, UnknownTaskError, VersionMismatchError

DIGEST = """
import hashlib, numpy as np
from llmserve_env.env.spaces import ActionCodec
from llmserve_env.env.episode import Episode
digest = hashlib.sha256()
actions = ActionCodec(Episode(1).task)
space = actions.space; space.seed(3)
for task in (1, 2, 3):
    episode = Episode(task)
    for seed in range(TIMES):
        episode.reset(seed)
        while not episode.is_done:
            episode.step(actions.decode(space.sample()[None])[0])
        for array in (episode.trajectory.terms, episode.trajectory.metrics, episode.trajectory.window):
            digest.update(array.tobytes())
print(digest.hexdigest())
"""


def play(episode: Episode, seed: int, steps: int) -> Episode:
    actions = ActionCodec(episode.task)
    space = actions.space
    space.seed(seed)
    episode.reset(seed)
    for _ in range(steps):
        episode.step(actions.decode(np.asarray(space.sample())[None])[0])
    return episode


@pytest.mark.parametrize("task", [1, 2, 3])
def test_a_replayed_log_is_the_same_episode(task: int) -> None:
    episode = play(Episode(task), seed=4, steps=60)
    again = replay(episode.log())
    assert again.log() == episode.log()
    for name in ("terms", "metrics", "window", "knobs"):
        assert getattr(again.trajectory, name).tobytes() == getattr(episode.trajectory, name).tobytes()


def test_a_log_of_another_version_is_refused() -> None:
    log = play(Episode(1), seed=0, steps=3).log()
    with pytest.raises(VersionMismatchError, match="play it again"):
        replay(replace(log, task_version=99))


@pytest.mark.slow
def test_ten_thousand_steps_are_bit_identical_in_two_processes() -> None:
    command = [sys.executable, "-c", DIGEST.replace("TIMES", "17")]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert runs[0] == runs[1]
    assert len(runs[0].strip()) == 64


def test_traffic_does_not_depend_on_actions() -> None:
    episodes = [Episode(3), Episode(3)]
    for episode, end in zip(episodes, (-1.0, 1.0), strict=True):
        actions = ActionCodec(episode.task, "box")
        knobs = actions.decode(np.full((1, len(actions.knobs)), end))[0]
        episode.reset(11)
        for _ in range(30):
            episode.step(knobs)
    for name in ("arrived", "arrived_prompt_tokens"):
        np.testing.assert_array_equal(episodes[0].trajectory.window[name], episodes[1].trajectory.window[name])


def test_wire_names_and_the_plans_aliases_mean_the_same() -> None:
    wire = {"batch_cap": 64, "kv_budget_fraction": 0.5, "speculation_depth": 2, "quantization_tier": "INT8",
            "prefill_decode_split": True, "priority_routing": False}  # fmt: skip
    plan = {"batch_size": 64, "kv_budget": 0.5, "spec_length": 2, "quant_tier": 1, "prefill_disagg": True}
    np.testing.assert_array_equal(knobs_from_mapping(wire), knobs_from_mapping(plan))
    assert {**mapping_from_knobs(knobs_from_mapping(wire)), **wire} == mapping_from_knobs(knobs_from_mapping(wire))
    assert mapping_from_knobs(knobs_from_mapping({}))["batch_cap"] == 32


@pytest.mark.parametrize(
    ("action", "complaint"),
    [
        ({"batch_cap": 0}, "batch_cap must be a whole number from 1 to 1024"),
        ({"batch_cap": 1025}, "batch_cap"),
        ({"batch_cap": 12.5}, "batch_cap"),
        ({"batch_cap": "32"}, "batch_cap"),
        ({"batch_cap": True}, "batch_cap"),
        ({"kv_budget_fraction": float("nan")}, "kv_budget_fraction must be a number from 0.1 to 1"),
        ({"kv_budget_fraction": 0.05}, "kv_budget_fraction"),
        ({"speculation_depth": 9}, "speculation_depth"),
        ({"quantization_tier": "FP6"}, "quantization_tier must be FP16, INT8, INT4, FP8, FP4"),
        ({"quant_tier": 5}, "quantization_tier"),
        ({"prefill_decode_split": "yes"}, "prefill_decode_split must be true or false"),
        ({"batch": 3}, "unknown field 'batch'"),
        ({"batch_cap": 3, "batch_size": 3}, "given twice"),
    ],
)
def test_a_bad_action_names_its_field_and_what_is_allowed(action: dict[str, object], complaint: str) -> None:
    with pytest.raises(InvalidActionError, match=complaint):
        knobs_from_mapping(action)


def test_an_episode_must_be_reset_before_it_is_stepped() -> None:
    with pytest.raises(EpisodeStateError, match="reset"):
        Episode(1).step(knobs_from_mapping({}))


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(EpisodeStateError, match="seed"):
        Episode(1).reset(seed)


def test_an_unknown_task_lists_the_known_ones() -> None:
    with pytest.raises(UnknownTaskError, match="static_workload"):
        Episode("nonsense")
