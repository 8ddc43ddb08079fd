"""A latency profile from a live engine: probe it, record its iterations, fit the simulator's cost model to them."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from llmserve_env.backends.real.load import Happening, LoadPlayer
from llmserve_env.backends.real.plugin.llmserve_steering.control import Status
from llmserve_env.backends.real.provider import Call
from llmserve_env.backends.real.recording import Recording, read_recording
from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.backends.real.spending import Budget
from llmserve_env.backends.real.vllm_provider import VllmProvider
from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.errors import ProviderError
from llmserve_env.profiles.architectures import Architecture
from llmserve_env.profiles.calibration import fit_iterations, predicted_ms
from llmserve_env.profiles.fitting import Iteration
from llmserve_env.profiles.host import Host
from llmserve_env.profiles.schema import FrontEnd, Gpu, Profile, Tier, TierName, TimeCurve
from llmserve_env.profiles.store import build_profile
from llmserve_env.profiles.timed_host import fit_launches
from llmserve_env.units import MS_PER_S

NEVER_S = 1e6
POLL_S = 0.05
LOOK_S = 1.0
WAVES = ((1, 24), (2, 64), (4, 160), (6, 100), (8, 48), (12, 64), (16, 96), (24, 40), (40, 30), (64, 24), (3, 700))
"""(Requests sent together, longest prompt) of the probing load's closed waves; lengths differ, so batches shrink."""
OUTPUT_TOKENS = (10, 70)
OPEN_S = 10.0
OPEN_PARTS = ((0.25, 1.0), (1.0, 1.0), (1.0, 0.5), (1.0, 0.25))
"""(Share of the rate that waves were served at, share of the largest batch cap) of the open parts: requests at random.

An engine that is handed new requests while it works is slower than one that is left alone with them, at every batch.
"""
LARGEST_PROMPT_SHARE = 0.5
GEMM_KNOTS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
"""Fewer knots than a GPU's curve has, because a wall clock is too noisy for more."""
CORE_BANDWIDTH_BYTES_PER_S, CORE_FLOPS_PER_S = 10**16, 1.0e18
"""Large enough to bound nothing: a cache holds the weights of a small model, and the fit may use any term."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What a probing load showed."""

    recording: Recording
    front_end: FrontEnd
    status: Status
    load_average: float


def probe(settings: RealSettings, seed: int = 0, rounds: int = 2) -> Probe:
    """Send waves of different sizes and some random traffic, and record every iteration; ninety seconds a round."""
    settings = settings.model_copy(update={"record_iterations": True})
    provider = VllmProvider(settings)
    provider.check()
    status = provider.status()
    player = LoadPlayer(provider, Budget(settings))
    try:
        single: set[int] = set()
        for wave in waves(np.random.default_rng(seed), status, rounds):
            single |= {call.index for call in wave.calls if wave.is_calm}
            provider.steer(batch_cap=wave.batch_cap, speculation_depth=0)
            player.play(wave.calls)
            _wait_for_silence(provider, player, settings.request_timeout_s)
        received = _first_tokens(player)
        sent_at_s = {index: at_s for index, at_s in player.sent_at_s.items() if index in single}
        received = {index: at_s for index, at_s in received.items() if index in single}
    finally:
        player.stop()
    recording = read_recording(provider.iterations_path, TIER_NAMES[0])
    front_end = front_end_of(recording, sent_at_s, received)
    return Probe(recording, front_end, status, os.getloadavg()[0])


@dataclass(frozen=True, slots=True)
class Wave:
    """Requests of the probing load that are served before the next ones are sent."""

    calls: list[Call]
    batch_cap: int
    is_calm: bool = False
    """Whether requests come singly, so that none waits for another in the front end."""


def waves(rng: np.random.Generator, status: Status, rounds: int) -> Iterator[Wave]:
    """Closed waves that fill batches evenly, then requests at random, `rounds` times."""
    index, largest = 0, status.max_batch_cap
    longest = int(LARGEST_PROMPT_SHARE * status.max_model_len)
    for _ in range(rounds):
        served_rps = 0.0
        # The order changes every round, so that other work on a shared machine does not always affect the same size.
        for count, prompt in rng.permutation(WAVES).tolist():
            now_s = time.monotonic()
            tokens = min(prompt, longest)
            sizes = rng.integers(max(tokens // 2, 1), tokens + 1, size=min(count, largest))
            yield Wave([_call(rng, index + i, now_s, int(size)) for i, size in enumerate(sizes)], largest)
            index += len(sizes)
            served_rps = max(served_rps, len(sizes) / (time.monotonic() - now_s))
        for rate_share, cap_share in OPEN_PARTS:
            rate_rps = rate_share * served_rps
            gaps = rng.exponential(1.0 / rate_rps, size=math.ceil(OPEN_S * rate_rps))
            times = (time.monotonic() + np.cumsum(gaps)).tolist()
            calls = [_call(rng, index + i, at_s, int(rng.integers(16, 128))) for i, at_s in enumerate(times)]
            yield Wave(calls, max(int(cap_share * largest), 1), is_calm=rate_share < 1.0)
            index += len(calls)


def _call(rng: np.random.Generator, index: int, at_s: float, prompt_tokens: int) -> Call:
    output_tokens = int(rng.integers(*OUTPUT_TOKENS))
    return Call(index, at_s, prompt_tokens, output_tokens, priority=0, slo_s=NEVER_S, patience_s=NEVER_S, seed=9)


def _wait_for_silence(provider: VllmProvider, player: LoadPlayer, timeout_s: float) -> None:
    """Wait until every request of the wave is over; reads the engine's gauges as often as an episode does."""
    deadline_s = time.monotonic() + timeout_s
    looked_at_s = time.monotonic()
    player.wait_until(time.monotonic() + POLL_S)
    while player.num_open:
        if player.dead is not None:
            raise player.dead
        if time.monotonic() > deadline_s:
            raise ProviderError(
                f"the probing load is not served within {timeout_s:g} s; the engine is stuck or too slow"
            )
        if time.monotonic() - looked_at_s > LOOK_S:
            looked_at_s = time.monotonic()
            provider.gauges()
        player.wait_until(time.monotonic() + POLL_S)
    if player.failures:
        raise ProviderError(f"the probing load failed: {dict(player.failures)}")


def _first_tokens(player: LoadPlayer) -> dict[int, float]:
    first: dict[int, float] = {}
    for event in player.take_events(math.inf):
        if event.what is Happening.TOKENS:
            first.setdefault(event.index, event.at_s)
    return first


def front_end_of(recording: Recording, sent_at_s: Mapping[int, float], received_at_s: Mapping[int, float]) -> FrontEnd:
    """Median time from client to engine and back, over the requests that both sides saw.

    Waiting for the running iteration to end is left out, because the simulator models it.
    """
    there = [recording.seen_at_s[i] - at_s for i, at_s in sent_at_s.items() if i in recording.seen_at_s]
    back = [at_s - recording.answered_at_s[i] for i, at_s in received_at_s.items() if i in recording.answered_at_s]
    if not there or not back:
        raise ProviderError("the engine recorded none of the requests: does another engine use its control folder?")
    request_ms, token_ms = (round(max(median(times), 0.0) * MS_PER_S, 3) for times in (there, back))
    return FrontEnd(request_ms=request_ms, token_ms=token_ms)


def host_of(recording: Recording, front_end: FrontEnd, graph_max_tokens: int, name: str, provenance: str) -> Host:
    """The host beside the device, fitted to the launches of a recording."""
    if not recording.launches:
        raise ProviderError(
            "the engine did not time its launches, so host and device cannot be told apart: start vLLM with "
            "--worker-cls llmserve_steering.worker.TimedWorker, as `llmserve real start` does"
        )
    fitted = fit_launches(recording.launches, graph_max_tokens)
    return Host(
        name=name,
        machine=f"{platform.machine()}, {os.cpu_count()} cores",
        engine="vLLM, a live server",
        provenance=provenance,
        front_end_ms=front_end.request_ms,
        answer_ms=front_end.token_ms,
        full_graph=fitted.full_graph,
        piecewise_graph=fitted.piecewise_graph,
        no_graph=fitted.no_graph,
        per_admission_ms=fitted.per_admission_ms,
        output=fitted.output,
        sampling=fitted.sampling,
        decode_attention=fitted.decode_attention,
    )


def cpu_core(memory_bytes: int, price_usd_per_hour: float) -> Gpu:
    """One CPU core, described as a GPU."""
    return Gpu(
        name="one CPU core",
        memory_bytes=memory_bytes,
        memory_bandwidth_bytes_per_s=CORE_BANDWIDTH_BYTES_PER_S,
        peak_flops_per_s=dict.fromkeys(TIER_NAMES, CORE_FLOPS_PER_S),
        weights_load_bytes_per_s=10**9,
        kv_transfer_bytes_per_s=10**9,
        price_usd_per_hour=price_usd_per_hour,
        power_w=20.0,
    )


def pace(profile: Profile, tier: TierName, iterations: Sequence[Iteration]) -> float:
    """Time of the iterations over what the profile predicts; not 1 if the machine drifted or the fit is bad."""
    return sum(iteration.ms for iteration in iterations) / sum(predicted_ms(profile, tier, iterations))


def profile_of(
    found: Probe, base: Profile, gpu: Gpu, architecture: Architecture, name: str, date: str, bytes_per_value: int
) -> Profile:
    """A profile fitted to the iterations of the probe and scaled to their total time."""
    tier: TierName = "FP16"
    start = base.model_copy(update={"gpu": gpu})
    fitted = fit_iterations(start, tier, found.recording.iterations, name, date, architecture, GEMM_KNOTS)
    scaled = scaled_profile(fitted, pace(fitted, tier, found.recording.iterations))
    wider = bytes_per_value / 2
    model = scaled.model.model_copy(update={"kv_bytes_per_token": int(scaled.model.kv_bytes_per_token * wider)})
    notes = (
        *fitted.provenance.notes,
        f"Front end and iterations under a probing load; load average of the machine {found.load_average:.1f}.",
        f"Values of {8 * bytes_per_value} bits under the name of the 16-bit tier; other tiers are not measured.",
    )
    provenance = fitted.provenance.model_copy(
        update={"source": "a live vLLM server", "measured_by": "llmserve calibrate", "notes": notes}
    )
    parts: dict[str, Any] = {
        **scaled.model_dump(),
        "model": model,
        "front_end": found.front_end,
        "provenance": provenance,
    }
    return build_profile(**parts)


def refitted(profile: Profile, recording: Recording, front_end: FrontEnd) -> Profile:
    """The profile fitted again to another run of the same engine, whose machine may have been slower or faster."""
    date = profile.provenance.date
    fitted = fit_iterations(profile, "FP16", recording.iterations, profile.name, date, None, GEMM_KNOTS)
    scaled = scaled_profile(fitted, pace(fitted, "FP16", recording.iterations))
    return scaled.model_copy(update={"front_end": front_end})


def scaled_profile(profile: Profile, factor: float) -> Profile:
    """The profile with every time of every tier multiplied by `factor`."""
    tiers = {name: _scaled(tier, factor) for name, tier in profile.tiers.items()}
    return profile.model_copy(update={"tiers": tiers})


def _scaled(tier: Tier, factor: float) -> Tier:
    lines = ("overhead_us", "per_sequence_us", "per_decode_token_us", "per_prefill_token_us")
    return tier.model_copy(
        update={
            **{line: getattr(tier, line) * factor for line in lines},
            "gemm_tokens": _times(tier.gemm_tokens, factor),
            "prefill_attention_pairs": _times(tier.prefill_attention_pairs, factor),
            "decode_attention": tuple(
                part.model_copy(update={"context_tokens": _times(part.context_tokens, factor)})
                for part in tier.decode_attention
            ),
        }
    )


def _times(curve: TimeCurve, factor: float) -> TimeCurve:
    return TimeCurve(x=curve.x, ms=tuple(ms * factor for ms in curve.ms))
