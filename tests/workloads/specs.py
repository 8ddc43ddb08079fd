"""Workload descriptions that the tests share, as they would be written in YAML."""

from __future__ import annotations

from typing import Any

import yaml

from llmserve_env.workloads import WorkloadSpec, parse_workload

STATIC = """
classes: [{name: interactive, ttft_slo_ms: 500, patience_s: 20}]
sources:
  - tenant: app
    arrivals: {kind: poisson, rate_rps: 10}
    kinds:
      - share: 1.0
        class: interactive
        prompt_tokens: {kind: uniform, low: 64, high: 128}
        output_tokens: {kind: lognormal, mu: 5.94, sigma: 0.6, low: 16, high: 2048}
        acceptance: {base: 0.80}
"""

BURSTY = """
classes: [{name: interactive, ttft_slo_ms: 300, patience_s: 10}]
sources:
  - tenant: app
    arrivals: {kind: bursts, base_rps: 25, burst_rps: 80, period_s: 30, burst_s: 12, jitter_s: 5}
    kinds:
      - share: 1.0
        class: interactive
        prompt_tokens: {kind: lognormal, mu: 5.2, sigma: 1.3, low: 32, high: 8192}
        output_tokens: {kind: lognormal, mu: 4.98, sigma: 0.8, low: 8, high: 2048}
        acceptance: {base: 0.65, per_prompt_doubling: -0.03, drift_amplitude: 0.1, drift_period_s: 80}
"""

ADVERSARIAL = """
classes:
  - {name: interactive, ttft_slo_ms: 200, patience_s: 5}
  - {name: batch, ttft_slo_ms: 2000, patience_s: 30}
  - {name: best_effort, ttft_slo_ms: null, patience_s: null}
sources:
  - tenant: background
    arrivals: {kind: poisson, rate_rps: 30}
    kinds: &kinds
      - share: 0.2
        class: interactive
        prompt_tokens: &short {kind: uniform, low: 32, high: 128}
        output_tokens: &short_output {kind: lognormal, mu: 3.98, sigma: 0.6, low: 4, high: 512}
        acceptance: &accept {base: 0.45, per_prompt_doubling: -0.02}
      - {share: 0.3125, class: batch, prompt_tokens: *short, output_tokens: *short_output, acceptance: *accept}
      - share: 0.1875
        class: batch
        prompt_tokens: &long {kind: uniform, low: 4096, high: 8192}
        output_tokens: &long_output {kind: lognormal, mu: 4.67, sigma: 0.6, low: 8, high: 1024}
        acceptance: *accept
      - {share: 0.1875, class: best_effort, prompt_tokens: *short, output_tokens: *short_output, acceptance: *accept}
      - {share: 0.1125, class: best_effort, prompt_tokens: *long, output_tokens: *long_output, acceptance: *accept}
  - tenant: spiky
    arrivals: {kind: spikes, base_rps: 3, factor: 10, every_s: 120, spike_s: 15, jitter_s: 20}
    kinds: *kinds
"""

CHATS = """
horizon_s: 300
classes: [{name: chat, ttft_slo_ms: 1000}]
sources:
  - tenant: agents
    arrivals: {kind: poisson, rate_rps: 2}
    sessions:
      turns: {kind: uniform, low: 1, high: 6}
      think_s: {kind: lognormal, mu: 2.5, sigma: 0.7, low: 1, high: 120}
      user_tokens: {kind: uniform, low: 5, high: 60}
      prefix_tokens: 512
      prefix_groups: 3
    kinds:
      - share: 1.0
        class: chat
        prompt_tokens: {kind: lognormal, mu: 5.0, sigma: 1.0, low: 8, high: 4000}
        output_tokens: {kind: uniform, low: 50, high: 300}
        acceptance: {base: 0.6}
"""


def data(text: str) -> dict[str, Any]:
    """The description as plain data that a test may change."""
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def workload(arrivals: dict[str, Any] | None = None, kind: dict[str, Any] | None = None, **fields: Any) -> WorkloadSpec:
    """One source, one class, one kind; arguments replace the defaults."""
    base_kind = {
        "share": 1.0,
        "class": "only",
        "prompt_tokens": {"kind": "constant", "value": 100},
        "output_tokens": {"kind": "constant", "value": 50},
        "acceptance": {"base": 0.5},
    }
    sessions = fields.pop("sessions", None)
    source = {
        "tenant": "t",
        "arrivals": arrivals or {"kind": "poisson", "rate_rps": 20},
        "kinds": [base_kind | (kind or {})],
        "sessions": sessions,
    }
    return parse_workload({"classes": [{"name": "only", "ttft_slo_ms": 100}], "sources": [source], **fields})
