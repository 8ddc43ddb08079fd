from __future__ import annotations

import numpy as np
import pytest

from llmserve_env.workloads import describe, parse_workload, sample
from tests.workloads.specs import ADVERSARIAL, BURSTY, CHATS, STATIC, data, workload


@pytest.mark.parametrize("text", [STATIC, BURSTY, ADVERSARIAL, CHATS], ids=["static", "bursty", "adversarial", "chats"])
def test_summary_agrees_with_other_seeds(text: str) -> None:
    spec = parse_workload(data(text))
    summary = describe(spec)
    tables = [sample(spec, seed) for seed in range(1000, 1040)]
    prompts = np.concatenate([table.prompt_tokens for table in tables])
    outputs = np.concatenate([table.output_tokens for table in tables])
    assert summary.mean_rps == pytest.approx(len(prompts) / 40 / spec.horizon_s, rel=0.02)
    assert summary.mean_prompt_tokens == pytest.approx(prompts.mean(), rel=0.03)
    assert summary.mean_output_tokens == pytest.approx(outputs.mean(), rel=0.03)
    assert summary.prompt_tokens_per_s == pytest.approx(prompts.sum() / 40 / spec.horizon_s, rel=0.05)
    assert summary == describe(spec)


def test_shares_are_by_name_and_sum_to_one() -> None:
    summary = describe(parse_workload(data(ADVERSARIAL)))
    assert summary.class_shares == pytest.approx({"interactive": 0.2, "batch": 0.5, "best_effort": 0.3}, abs=0.01)
    assert sum(summary.tenant_shares.values()) == pytest.approx(1)
    assert summary.tenant_shares["background"] == pytest.approx(30 / summary.mean_rps, rel=0.02)
    assert summary.peak_rps == pytest.approx(60)


def test_on_off_rate_is_exact() -> None:
    spec = workload({"kind": "on_off", "on_rps": 9, "on_s": 16, "off_s": 43, "off_rps": 1}, rate_scale=2.0)
    assert describe(spec).mean_rps == pytest.approx(2 * (9 * 16 + 43) / 59)


def test_silence_has_a_summary_too() -> None:
    summary = describe(workload({"kind": "off"}))
    assert (summary.mean_rps, summary.mean_prompt_tokens, summary.class_shares) == (0.0, 0.0, {"only": 0.0})
