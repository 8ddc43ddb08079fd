"""A grade in words."""

from __future__ import annotations

import math
from collections.abc import Iterable

from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.request_outcomes import RequestFigures, latency_text

_STRONG, _WEAK = 0.9, 0.5
_ACRONYMS = ("slo", "ttft", "itl")
_WITH_SLO = ("cost", "memory", "stability")
"""Components that are multiplied by the share of requests within their SLO."""
_ADVICE = {
    "throughput": "too little of the traffic was answered in time at full value",
    "slo": "too many requests were served later than promised, or not at all",
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
        said.append(f"Close to the best known: {_listed(map(_word, strong))}.")
    weak = sorted((name for name, value in normalised.items() if value < _WEAK), key=normalised.__getitem__)
    follow_slo = [name for name in weak if _follows_slo(name, measured)]
    earned = {name: f"{100 * value:.0f} %" for name, value in normalised.items()}
    said += [
        f"{earned[name]} of the points for {_word(name)}: {_ADVICE[name]}." for name in weak if name not in follow_slo
    ]
    if follow_slo:
        shares = _listed(f"{earned[name]} of those for {_word(name)}" for name in follow_slo)
        said.append(f"{shares}: only requests that met their SLO earn them, and too few did.")
    said += [_incidents(episode, requests), _latencies(requests)]
    return " ".join(said)


def _word(name: str) -> str:
    return name.upper() if name in _ACRONYMS else name


def _listed(words: Iterable[str]) -> str:
    return " and ".join(", ".join(words).rsplit(", ", 1))


def _follows_slo(name: str, measured: dict[str, float]) -> bool:
    """Whether a component was lost to missed SLOs rather than to what it is named after."""
    return name in _WITH_SLO and measured["slo"] ** 2 <= measured[name]


def _incidents(episode: PlayedEpisode, requests: RequestFigures) -> str:
    totals = episode.trajectory.totals()
    return (
        f"{requests.num_lost:,} of {requests.num_requests:,} requests were lost (turned away, or their clients left); "
        f"there were {totals['preemptions']:,.0f} preemptions and {totals['ooms']:,.0f} out-of-memory restarts."
    )


def _latencies(requests: RequestFigures) -> str:
    """The percentiles count a lost request as one that waits forever."""
    ttft, tpot = requests.ttft, requests.tpot
    if math.isnan(ttft[50]):
        return "No request was answered or lost."
    if math.isinf(ttft[50]):
        return "At least half of the requests were lost before their first token."
    tail = (
        "more than 1 % of the requests were lost before theirs, so there is no 99th percentile"
        if math.isinf(ttft[99])
        else f"99 % came within {latency_text(ttft[99])}"
    )
    return f"The median wait for a first token was {latency_text(ttft[50])}, and {tail}." + (
        "" if math.isnan(tpot[50]) else f" Each further token took {latency_text(tpot[50], 1)} in the median."
    )
