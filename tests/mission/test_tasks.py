"""The three tasks: traffic, promises, limits and knobs."""

from __future__ import annotations

import numpy as np
import pytest

from llmserve_env.tasks.catalog import BENCHMARK, load_task
from llmserve_env.tasks.task import Task
from llmserve_env.workloads import describe, sample
from llmserve_env.workloads.schedule import schedule
from tests.mission.asked import asked

SEEDS = range(8)


@pytest.fixture
def tasks() -> list[Task]:
    return [load_task(number) for number in (1, 2, 3)]


def prompts(task: Task) -> np.ndarray:
    return np.concatenate([sample(task.workload, seed).prompt_tokens for seed in SEEDS])


@asked('| | 1 `static_workload` (easy, "Static Uniform")', "the same ids, numbers, names and difficulties")
def test_tasks_have_the_ids_numbers_names_and_difficulties_asked_for(tasks: list[Task]) -> None:
    found = [(task.id, task.number, task.name, task.difficulty) for task in tasks]
    assert found == [
        ("static_workload", 1, "Static Uniform", "easy"),
        ("bursty_workload", 2, "Bursty ShareGPT", "medium"),
        ("adversarial_multitenant", 3, "Adversarial Multi-Tenant", "hard"),
    ]


@asked(
    "| arrivals | Poisson 10 rps | Poisson 25 rps, bursts 80 rps, period 30 steps |",
    "Poisson 10; 25 with bursts of 80 about every 30 steps; 30 in the mean outside spikes, ×10 of one tenant for 15 s",
    "no policy can serve ten times the whole fleet's traffic, so nothing could be learnt from it; "
    "`adversarial_spike` is that variant",
)
def test_arrivals_are_those_of_the_plan(tasks: list[Task]) -> None:
    static, bursty, adversarial = (describe(task.workload) for task in tasks)
    assert static.mean_rps == pytest.approx(10, rel=0.02)
    assert bursty.peak_rps == pytest.approx(80, rel=0.02)
    quiet = [schedule(tasks[1].workload, seed).rate_rps.sum(axis=1).min() for seed in SEEDS]
    assert quiet == pytest.approx([25.0] * len(SEEDS))
    rates = np.concatenate([schedule(tasks[2].workload, seed).rate_rps for seed in range(32)])
    chat, documents, spiky = rates.T
    assert chat.mean() + documents.mean() + spiky.min() == pytest.approx(30, rel=0.05)
    assert spiky.max() == pytest.approx(10 * spiky.min())
    assert adversarial.peak_rps > 2 * 30


@asked("| prompts | uniform 64–128 | log-normal μ 5.2 σ 1.3, clamp 32–8192 | 70 %", "the same distributions")
def test_prompts_are_those_of_the_plan(tasks: list[Task]) -> None:
    static, bursty, adversarial = map(prompts, tasks)
    assert (static.min(), static.max()) == (64, 128)
    assert (bursty.min(), bursty.max()) == (32, 8192)
    assert np.median(bursty) == pytest.approx(np.exp(5.2), rel=0.03)
    long = adversarial >= 4096
    assert long.mean() == pytest.approx(0.3, abs=0.06)
    assert adversarial[~long].max() <= 128


@asked(
    "| TTFT SLO | 500 ms | 300 ms | 200 ms interactive, 2,000 ms batch |",
    "the same; best effort has 8,000 ms",
    "a class without an SLO could be starved at no cost",
)
def test_promises_are_those_of_the_plan(tasks: list[Task]) -> None:
    found = [{c.name: c.ttft_slo_ms for c in task.workload.classes} for task in tasks]
    assert found == [
        {"interactive": 500},
        {"interactive": 300},
        {"interactive": 200, "batch": 2000, "best_effort": 8000},
    ]


@asked("| memory hard limit | 40 GB card | 36 GB | 38 GB |", "the same limits per GPU")
def test_memory_limits_are_those_of_the_plan(tasks: list[Task]) -> None:
    assert [task.deployment.memory_limit_gb for task in tasks] == [40, 36, 38]


@asked("| priority mix | – | – | 0.2 / 0.5 / 0.3 |", "the same in the mean over episodes")
def test_the_priority_mix_is_that_of_the_plan(tasks: list[Task]) -> None:
    classes = np.concatenate([sample(tasks[2].workload, seed).priority for seed in range(32)])
    counts = np.bincount(classes, minlength=3)
    assert counts / counts.sum() == pytest.approx([0.2, 0.5, 0.3], abs=0.03)


@asked(
    "| base acceptance of drafts | 0.80 | 0.65 | 0.45 |",
    "the same bases; on tasks 2 and 3 acceptance drifts around them and falls with longer prompts",
)
def test_the_base_acceptance_of_drafts_is_that_of_the_plan(tasks: list[Task]) -> None:
    bases = [{k.acceptance.base for s in task.workload.sources for k in s.kinds} for task in tasks]
    assert bases == [{0.80}, {0.65}, {0.45}]


@asked("| active knobs | KV, batch | + speculation | all |", "the same; `/tasks` lists them as `active_actions`")
def test_active_knobs_are_those_of_the_plan(tasks: list[Task]) -> None:
    active = [set(task.knobs.active) for task in tasks]
    assert active[0] == {"batch_cap", "kv_budget_fraction"}
    assert active[1] == active[0] | {"speculation_depth"}
    assert active[2] == active[1] | {"quantization_tier", "prefill_decode_split", "priority_routing"}


@asked("| teaches | batching and KV trade-offs |", "every task says what it teaches")
def test_every_task_says_what_it_teaches(tasks: list[Task]) -> None:
    assert all(task.teaches and task.description for task in tasks)


@asked("Episodes of 200 steps.", "200 windows of one second")
def test_episodes_have_200_steps(tasks: list[Task]) -> None:
    assert [(task.steps, task.window_s) for task in tasks] == [(200, 1.0)] * len(BENCHMARK)
