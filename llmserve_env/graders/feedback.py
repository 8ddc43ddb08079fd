"""A grade in words."""

from __future__ import annotations

from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.request_outcomes import RequestFigures, latency_text

_STRONG, _WEAK = 0.9, 0.5
_ADVICE = {
    "throughput": "too little of the traffic was answered in time at full value",
    "slo": "too many requests waited longer than promised for their first token",
    "ttft": "first tokens came late: raise the batch cap or the KV budget before bursts, or lower the precision",
    "itl": "streams were slow: smaller batches, speculation while drafts are accepted, or a lower precision help",
    "cost": "the fleet was billed for more memory or GPUs than the traffic needed",
    "memory": "the KV pool was larger than the traffic needed, or so small that requests lost their blocks",
    "stability": "batch cap and KV budget were moved more than they had to be",
}


def feedback_for(
    episode: PlayedEpisode, requests: RequestFigures, normalised: dict[str, float], measured: dict[str, float]
) -> str:
    """Sentences: what is missing, what went well, what cost points, and what happened on the way."""
    if episode.step_count == 0:
        return "The log is empty: nothing was served, so the score is 0."
    said = []
    missing = episode.task.steps - episode.step_count
    if missing:
        said.append(f"Truncated: {missing} of {episode.task.steps} steps are missing and count as nothing served.")
    strong = [name for name, value in normalised.items() if value >= _STRONG]
    if strong:
        said.append(f"At or near the reference optimum: {', '.join(strong)}.")
    for name in sorted(normalised, key=normalised.__getitem__):
        if normalised[name] < _WEAK:
            said.append(f"{name} {normalised[name]:.2f} (measured {measured[name]:.3f}): {_ADVICE[name]}.")
    said += [_incidents(episode, requests), _latencies(requests)]
    return " ".join(said)


def _incidents(episode: PlayedEpisode, requests: RequestFigures) -> str:
    totals = episode.trajectory.totals()
    return (
        f"Of {requests.num_requests} requests {requests.num_lost} were turned away or left; "
        f"{totals['preemptions']:.0f} preemptions, {totals['ooms']:.0f} out-of-memory restarts."
    )


def _latencies(requests: RequestFigures) -> str:
    ttft, tpot = requests.ttft, requests.tpot
    return (
        f"First tokens after {latency_text(ttft[50])} (p50), {latency_text(ttft[99])} (p99 of all requests); "
        f"{latency_text(tpot[50], 1)} per further token (p50)."
    )
