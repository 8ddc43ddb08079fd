"""Deployments that say what is served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmserve_env.engine.costs import NO_HOST
from llmserve_env.env.episode import Episode
from llmserve_env.errors import ConfigError
from llmserve_env.planning.report.flags import serving
from llmserve_env.profiles.host import load_host
from llmserve_env.profiles.store import load_profile
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import parse_task
from tests.own_tasks import own_task, write_task

WORDS: dict[str, Any] = {
    "gpu": "h100-80gb",
    "model": "qwen3-32b",
    "tensor_parallel": 2,
    "weights": "fp8",
    "kv_cache": "fp8",
    "replicas": 4,
}


def test_a_deployment_says_what_is_served(tmp_path: Path) -> None:
    task = load_task(write_task(tmp_path, own_task(deployment=WORDS)))
    assert task.deployment.profile == "h100-80gb.qwen3-32b.kv-fp8.tp2"
    assert task.deployment.tiers == ("FP8",)
    fleet = task.fleet
    assert fleet.num_replicas == 4
    assert fleet.costs.price_usd_per_hour == pytest.approx(2 * 2.99)
    # 64 layers, half of 8 key-value heads of 128 numbers, keys and values in a byte each.
    assert fleet.costs.kv_bytes_per_token == 64 * 2 * 4 * 128
    assert 600_000 < fleet.num_blocks(1.0, 3, False) * 16 < 950_000


def test_it_has_a_host_as_vllm_has_one_unless_told_otherwise(tmp_path: Path) -> None:
    fleet = load_task(write_task(tmp_path, own_task(deployment=WORDS))).fleet
    profile = load_profile("h100-80gb.qwen3-32b.kv-fp8.tp2")
    assert fleet.host == load_host("xeon-h200-vllm-0.26").for_model(profile.model).costs()
    assert fleet.async_scheduling
    alone = load_task(write_task(tmp_path, own_task(deployment={**WORDS, "host": None}))).fleet
    assert (alone.host, alone.async_scheduling) == (NO_HOST, False)


def test_its_knobs_are_those_it_can_move(tmp_path: Path) -> None:
    task = load_task(write_task(tmp_path, own_task(deployment={**WORDS, "weights": ["fp8", "fp16"]})))
    tiers = next(knob for knob in task.knob_table if knob.name == "quantization_tier")
    drafts = next(knob for knob in task.knob_table if knob.name == "speculation_depth")
    assert [tiers.wire(level) for level in tiers.levels] == ["FP8", "FP16"]
    assert drafts.levels == (0,)


def test_an_episode_runs_on_it(tmp_path: Path) -> None:
    task = load_task(write_task(tmp_path, own_task(deployment=WORDS)))
    episode = Episode(task)
    episode.reset(1)
    episode.step(task.default_knobs)
    assert episode.batch.metrics["throughput_tps"][0] > 0


def test_the_command_to_start_it_names_model_and_parallelism(tmp_path: Path) -> None:
    task = load_task(write_task(tmp_path, own_task(deployment={**WORDS, "weights": "fp16"})))
    found = serving(task, task.default_knobs)
    assert found is not None
    assert found.model == "Qwen/Qwen3-32B"
    words = " ".join(found.words)
    assert "--tensor-parallel-size 2" in words
    assert "--kv-cache-dtype fp8" in words


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"gpu": "v100"}, "deployment: gpu 'v100' is not known; choose one of a100-40gb"),
        ({"model": "llama-9"}, "deployment: model 'llama-9' is not known; choose one of"),
        ({"tensor_parallel": 3}, "tensor_parallel 3 does not divide the 64 heads of qwen3-32b"),
        ({"tensor_parallel": "two"}, "tensor_parallel must be a whole number of 1 or more; got 'two'"),
        ({"weights": "fp3"}, "weights 'fp3' unknown; choose from fp16"),
        ({"kv_cache": "fp2"}, "kv_cache 'fp2' unknown; choose one of fp16, fp8"),
        ({"gpu": "a100-80gb"}, "weights fp8: a100-80gb does not compute in it; allowed: fp16"),
        (
            {"gpu": "l40s-48gb", "weights": "fp16", "tensor_parallel": 1},
            "tensor_parallel 1: qwen3-32b in fp16 leaves no room for keys and values on l40s-48gb; the smallest that "
            "fits is 2",
        ),
        ({"profile": "a100-40gb.llama-3-8b"}, "give either profile or gpu, model"),
    ],
)
def test_a_word_that_is_wrong_is_named_with_what_is_allowed(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_task(own_task(deployment={**WORDS, **changes}))
