"""Requests of a recorded run: arrival times, prompt and output lengths, drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

MAX_CONTEXT_TOKENS = 16_000


@dataclass(frozen=True, slots=True)
class Traffic:
    """One row per request, sorted by arrival."""

    arrival_s: Any
    prompt_tokens: Any
    output_tokens: Any
    priority: Any = None
    """0 is the most urgent; None: all are alike."""
    prefix_id: Any = None
    """Requests with one id begin with the same tokens; -1 shares none, None: no request shares any."""
    prefix_tokens: Any = None

    def __len__(self) -> int:
        return len(self.arrival_s)


def _poisson(random: np.random.Generator, rate_rps: float, duration_s: float) -> Any:
    gaps = random.exponential(1.0 / rate_rps, int(rate_rps * duration_s * 2) + 50)
    arrivals = gaps.cumsum()
    return arrivals[arrivals < duration_s]


def _outputs(random: np.random.Generator, mean_tokens: float, count: int) -> Any:
    return np.clip(random.exponential(mean_tokens, count).astype(int), 1, 2_000)


def light(random: np.random.Generator, duration_s: float, rate_rps: float = 10.0) -> Traffic:
    """Short prompts at a steady rate, long answers."""
    arrivals = _poisson(random, rate_rps, duration_s)
    n = len(arrivals)
    return Traffic(arrivals, random.integers(64, 129, n), _outputs(random, 330.0, n))


def burst(random: np.random.Generator, duration_s: float, rate_rps: float = 25.0, peak_rps: float = 80.0) -> Traffic:
    """Log-normal prompts; ten seconds of every thirty come at the peak rate."""
    arrivals = _poisson(random, max(rate_rps, peak_rps), duration_s)
    rate = np.where(arrivals % 30.0 < 20.0, rate_rps, peak_rps)
    arrivals = arrivals[random.random(len(arrivals)) < rate / max(rate_rps, peak_rps)]
    n = len(arrivals)
    prompts = np.clip(random.lognormal(5.2, 1.3, n).astype(int), 32, 8_192)
    return Traffic(arrivals, prompts, _outputs(random, 150.0, n))


def mixed(random: np.random.Generator, duration_s: float, rate_rps: float = 15.0) -> Traffic:
    """Short prompts with three in ten of 4k to 8k tokens between them."""
    arrivals = _poisson(random, rate_rps, duration_s)
    n = len(arrivals)
    is_long = random.random(n) < 0.3
    prompts = np.where(is_long, random.integers(4_096, 8_193, n), random.integers(32, 129, n))
    return Traffic(arrivals, prompts, _outputs(random, 150.0, n))


def chat(random: np.random.Generator, duration_s: float, rate_rps: float = 20.0) -> Traffic:
    """Prompts and outputs with the quantiles of Azure's 2023 conversation trace."""
    arrivals = _poisson(random, rate_rps, duration_s)
    n = len(arrivals)
    prompts = np.clip(random.lognormal(np.log(1_020.0), 0.95, n).astype(int), 16, 7_000)
    outputs = np.clip(random.lognormal(np.log(129.0), 0.95, n).astype(int), 1, 1_000)
    return Traffic(arrivals, prompts, outputs)


def fixed(
    random: np.random.Generator,
    duration_s: float,
    rate_rps: float = 8.0,
    prompt_tokens: int = 2_000,
    output_tokens: int = 200,
) -> Traffic:
    """One length for all, evenly spaced."""
    del random
    arrivals = np.arange(0.0, duration_s, 1.0 / rate_rps)
    n = len(arrivals)
    return Traffic(arrivals, np.full(n, prompt_tokens), np.full(n, output_tokens))


def waves(
    random: np.random.Generator,
    duration_s: float,
    sizes: tuple[int, ...] = (1, 8, 32, 64, 128),
    prompt_tokens: int = 1_000,
    output_tokens: int = 120,
) -> Traffic:
    """Batches that arrive at once, each after the one before has had time to finish: the pure costs of a batch."""
    del random
    gap_s = duration_s / len(sizes)
    arrivals = np.concatenate([np.full(size, i * gap_s) for i, size in enumerate(sizes)])
    n = len(arrivals)
    return Traffic(arrivals, np.full(n, prompt_tokens), np.full(n, output_tokens))


def uniform(
    random: np.random.Generator,
    duration_s: float,
    rate_rps: float = 10.0,
    prompt_tokens: tuple[int, int] = (64, 1_024),
    output_tokens: tuple[int, int] = (16, 256),
    high_priority_share: float = 0.0,
    num_prefixes: int = 0,
    prefix_tokens: int = 0,
) -> Traffic:
    """Lengths drawn evenly from two ranges; some requests are urgent, and some begin with one of a few prefixes."""
    arrivals = _poisson(random, rate_rps, duration_s)
    n = len(arrivals)
    prompts = random.integers(prompt_tokens[0], prompt_tokens[1] + 1, n)
    outputs = random.integers(output_tokens[0], output_tokens[1] + 1, n)
    is_urgent = random.random(n) < high_priority_share
    # One request in four shares nothing.
    chosen = random.integers(-(num_prefixes // 3), num_prefixes, n) if num_prefixes else np.full(n, -1)
    prefix_id = np.maximum(chosen, -1)
    shared = np.where(prefix_id >= 0, prefix_tokens, 0)
    return Traffic(arrivals, prompts + shared, outputs, np.where(is_urgent, 0, 1), prefix_id, shared)


def pulses(
    random: np.random.Generator, duration_s: float, size: int = 24, gap_s: float = 4.0, **options: Any
) -> Traffic:
    """The requests of `uniform`, of which groups arrive together, a microsecond apart."""
    drawn = uniform(random, duration_s, size / gap_s, **options)
    order = np.arange(len(drawn))
    return replace(drawn, arrival_s=np.floor(order / size) * gap_s + order % size * 1e-6)


KINDS: dict[str, Callable[..., Traffic]] = {
    "light": light,
    "burst": burst,
    "mixed": mixed,
    "chat": chat,
    "fixed": fixed,
    "waves": waves,
    "uniform": uniform,
    "pulses": pulses,
}


def draw(kind: str, seed: int, duration_s: float, options: dict[str, Any]) -> Traffic:
    """The traffic of a run; lists in `options` come from JSON and are read as tuples."""
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    traffic = KINDS[kind](np.random.default_rng(seed), duration_s, **given)
    outputs = np.minimum(traffic.output_tokens, MAX_CONTEXT_TOKENS - traffic.prompt_tokens)
    return replace(traffic, output_tokens=outputs)
