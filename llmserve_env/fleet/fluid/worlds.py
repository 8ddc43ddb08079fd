"""The traffic of many episodes as arrays, for playing them side by side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.traffic import Traffic

PER_WINDOW = (
    "arrivals",
    "prompt_tokens",
    "new_prompt_tokens",
    "output_tokens",
    "income_usd",
    "session_starts",
    "open_sessions",
    "batch_arrivals",
)


@dataclass(frozen=True, slots=True)
class Worlds:
    """Episodes of one task; arrays are [episode, window] unless they say otherwise."""

    window_s: float
    lead_windows: int
    start_s: Array
    """[episode]: where each begins in its series."""
    per_window: dict[str, Array]
    job_usd: Array
    """[episode]: mean value of a batch job."""
    job_tokens: Array
    """[episode, 2]: mean prompt and output tokens of a batch job."""
    initial: Array
    """[episode, pool]."""
    capacity: Array
    """[episode, window, pool]."""
    delays: Array
    """[episode, pool, launch], in windows; negative for launches that fail."""

    @classmethod
    def of(cls, traffics: Iterable[Traffic]) -> Worlds:
        """Stack the traffic of episodes of one task; of each, only what is kept here stays in memory."""
        rows = [_row(traffic) for traffic in traffics]
        start_s, window_s, lead_windows, arrays = zip(*rows, strict=True)
        return cls(
            window_s=window_s[0],
            lead_windows=lead_windows[0],
            start_s=np.array(start_s),
            per_window={name: np.array([each[name] for each in arrays]) for name in PER_WINDOW},
            **{name: np.array([each[name] for each in arrays]) for name in arrays[0] if name not in PER_WINDOW},
        )

    def __len__(self) -> int:
        return len(self.start_s)

    def some(self, rows: Array) -> Worlds:
        """These episodes only."""
        return Worlds(
            self.window_s,
            self.lead_windows,
            self.start_s[rows],
            {name: values[rows] for name, values in self.per_window.items()},
            self.job_usd[rows],
            self.job_tokens[rows],
            self.initial[rows],
            self.capacity[rows],
            self.delays[rows],
        )

    @property
    def num_windows(self) -> int:
        """Windows of an episode, those before its first decision included."""
        return int(self.per_window["arrivals"].shape[1])


def _row(traffic: Traffic) -> tuple[float, float, int, dict[str, Array]]:
    """What is kept of one episode's traffic."""
    arrays = {name: getattr(traffic, name) for name in PER_WINDOW}
    jobs = traffic.jobs
    arrays["job_usd"] = np.float64(_mean(jobs.value_usd))
    arrays["job_tokens"] = np.array([_mean(jobs.prompt_tokens), _mean(jobs.output_tokens)])
    arrays["initial"] = np.array(traffic.initial, np.float64)
    arrays["capacity"] = traffic.capacity
    arrays["delays"] = traffic.launch_delays_s / traffic.window_s
    return traffic.start_s, traffic.window_s, traffic.lead_windows, arrays


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else 0.0
