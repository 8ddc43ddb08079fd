"""What the report says to start: flags that follow the configuration, and that vLLM itself accepts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.answers import random_task
from llmserve_env.planning.answer.configurations import active_tiers, configurations
from llmserve_env.planning.report.flags import (
    Serving,
    docker_command,
    kubernetes_manifest,
    memory_utilisation,
    serve_command,
    serving,
)
from llmserve_env.profiles.checkpoints import find_checkpoint
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import parse_task
from llmserve_env.tasks.variants import with_changes

CHECKER = Path(__file__).with_name("vllm_accepts.py")


def started(task_id: str = "bursty_workload", **knobs: Any) -> Serving:
    task = load_task(task_id)
    found = serving(task, task.knobs_from_mapping(knobs))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ({"batch_cap": 96}, "--max-num-seqs 96"),
        ({"speculation_depth": 2}, '"num_speculative_tokens": 2'),
        ({"priority_routing": True}, "--scheduling-policy priority"),
        ({}, "--max-num-batched-tokens 2048"),
        ({}, "--tensor-parallel-size 1"),
    ],
)
def test_flags_follow_the_knobs(knobs: dict[str, Any], expected: str) -> None:
    assert expected in serve_command(started(**knobs))


def test_a_precision_names_a_checkpoint_that_has_it() -> None:
    assert started(quantization_tier="INT8").model.endswith("quantized.w8a8")
    assert started(quantization_tier="INT4").model.endswith("quantized.w4a16")
    assert "--quantization" not in serve_command(started(quantization_tier="INT8")), "the checkpoint says its format"
    assert find_checkpoint("no-such-model", "INT8", 4096) is None


def test_the_context_is_never_longer_than_the_models() -> None:
    short, long = (find_checkpoint("llama-3-8b", "FP16", tokens) for tokens in (8_192, 16_384))
    assert short is not None and long is not None
    assert (short.hub_name, short.max_model_len) == ("meta-llama/Meta-Llama-3-8B-Instruct", 8_192)
    assert (long.hub_name, long.max_model_len) == ("meta-llama/Llama-3.1-8B-Instruct", 131_072)
    task = with_changes(load_task("static_workload"), deployment={"max_model_len": 4_096})
    found = serving(task, task.default_knobs)
    assert found is not None
    assert "--max-model-len 4096" in serve_command(found)


def test_all_memory_of_the_card_is_used_as_the_task_says() -> None:
    task = load_task("bursty_workload")
    rows = [task.knobs_from_mapping({"kv_budget_fraction": share}) for share in (1.0, 0.5)]
    full, half = (memory_utilisation(task, row) for row in rows)
    assert full == pytest.approx(task.fleet.memory_limit_bytes / task.fleet.costs.memory_bytes)
    assert half < full
    flag = next(flag for flag in started().flags if flag.name == "--gpu-memory-utilization")
    assert full - 0.01 < float(flag.value) <= full


def test_docker_and_kubernetes_start_the_same() -> None:
    found = started(batch_cap=64, priority_routing=True)
    manifest = yaml.safe_load(kubernetes_manifest(found, "My service!", 3))
    assert manifest["spec"]["replicas"] == 3
    assert manifest["metadata"]["name"] == "my-service"
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["--model", *found.words]
    assert all(word in docker_command(found) for flag in found.flags for word in flag.words if "{" not in word)


@pytest.mark.real
def test_every_command_of_thirty_random_tasks_is_accepted_by_vllm(tmp_path: Path) -> None:
    python = os.environ["LLMSERVE_REAL_PYTHON"]
    commands = set()
    for number in range(30):
        task = parse_task(random_task(number))
        rows = [row for tier in active_tiers(task) for row in configurations(task, tier)]
        found = [serving(task, row) for row in rows]
        commands |= {json.dumps(["serve", *one.words]) for one in found if one is not None}
    done = subprocess.run(
        [python, str(CHECKER)],
        input="\n".join(sorted(commands)),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    verdicts = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(verdicts) == len(commands) > 20
    assert [one for one in verdicts if one["problem"]] == []
