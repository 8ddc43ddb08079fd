"""Whether the client and its machine were steady: where they were not, an episode says less about its policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from tools.card_experiment.records import Record

BUSY_REQUESTS = 20
"""With this many running, first tokens and ends of answers come many times a second."""
AFTERMATH_S = 2.0


@dataclass(frozen=True, slots=True)
class Health:
    """What the client's clock says about one episode."""

    silence_s: float
    """The longest time in which nothing reached the client while many requests ran."""
    silence_at_s: float
    reward_after: float
    """Mean reward of the two seconds from then on."""
    simulated_reward_after: float
    """The same in the simulator, where no client is silent."""
    client_us_per_token: float | None
    """CPU time of the client's process per output token, a measure of how fast the machine was; None if not kept."""


def health_of(record: Record, simulated_reward: Array, window_s: float) -> Health:
    """The episode's longest silence, what came after it, and the pace of its machine."""
    at_s, length_s = longest_silence(record, window_s)
    first = int(at_s / window_s)
    after = slice(first, first + round(AFTERMATH_S / window_s))
    tokens = float(record.windows["throughput_tps"].sum()) * window_s
    share: Any = record.facts.get("client_cpu_share")
    seconds = len(record.windows["reward"]) * window_s
    return Health(
        silence_s=length_s,
        silence_at_s=at_s,
        reward_after=float(record.windows["reward"][after].mean()),
        simulated_reward_after=float(simulated_reward[after].mean()),
        client_us_per_token=None if share is None else 1e6 * float(share) * seconds / max(tokens, 1.0),
    )


def longest_silence(record: Record, window_s: float) -> tuple[float, float]:
    """When it began and how long it was, between first tokens and ends of answers; (0, 0) if it was never busy."""
    requests, running = record.requests, record.windows["active_requests"]
    events_s = np.concatenate([requests.arrival_s + latency / 1e3 for latency in (requests.ttft_ms, requests.e2e_ms)])
    events_s = np.sort(events_s[np.isfinite(events_s)])
    windows = np.minimum((events_s[:-1] / window_s).astype(int), len(running) - 1)
    lengths_s = np.where(running[windows] >= BUSY_REQUESTS, np.diff(events_s), 0.0)
    if not lengths_s.any():
        return 0.0, 0.0
    longest = int(np.argmax(lengths_s))
    return float(events_s[longest]), float(lengths_s[longest])
