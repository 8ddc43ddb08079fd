"""The traffic of many episodes as arrays, for playing them side by side."""

from __future__ import annotations

from collections.abc import Sequence
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
    def of(cls, traffics: Sequence[Traffic]) -> Worlds:
        """Stack the traffic of episodes of one task."""
        window_s = traffics[0].window_s
        return cls(
            window_s=window_s,
            lead_windows=traffics[0].lead_windows,
            start_s=np.array([traffic.start_s for traffic in traffics]),
            per_window={name: np.array([getattr(traffic, name) for traffic in traffics]) for name in PER_WINDOW},
            job_usd=np.array([_mean(traffic.jobs.value_usd) for traffic in traffics]),
            job_tokens=np.array(
                [[_mean(traffic.jobs.prompt_tokens), _mean(traffic.jobs.output_tokens)] for traffic in traffics]
            ),
            initial=np.array([traffic.initial for traffic in traffics], np.float64),
            capacity=np.array([traffic.capacity for traffic in traffics]),
            delays=np.array([traffic.launch_delays_s for traffic in traffics]) / window_s,
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


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else 0.0
