"""The answer as text for a terminal: the same lines under every command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmserve_env.planning.answer.answer import Answer, Configured, Followed, Option

ORDER = {True: "priority", False: "fcfs"}


def knobs_text(knobs: Mapping[str, Any]) -> str:
    """What an engine is started with, in one line."""
    said = [
        f"batch {knobs['batch_cap']}",
        f"drafts {knobs['speculation_depth']}",
        ORDER[bool(knobs["priority_routing"])],
    ]
    if "token_budget" in knobs:
        said.insert(1, f"token budget {knobs['token_budget']}")
    return ", ".join(said)


def knobs_in_words(knobs: Mapping[str, Any]) -> str:
    """The configuration in words, to be used within a sentence."""
    depth = knobs["speculation_depth"]
    order = "urgent classes first" if knobs["priority_routing"] else "requests in order of arrival"
    said = [f"a batch cap of {knobs['batch_cap']:,}", "no drafts" if depth == 0 else f"{depth} drafted tokens", order]
    if "token_budget" in knobs:
        said.insert(1, f"a token budget of {knobs['token_budget']:,}")
    return f"{', '.join(said[:-1])} and {said[-1]}"


def fleet_text(fleet: Configured) -> str:
    """Fleet, precision, price and configuration."""
    gpus = f"{fleet.replicas} × {fleet.gpu} at {fleet.tier_name}"
    return f"{gpus}, {fleet.usd_per_hour:.2f} USD/h: {knobs_text(fleet.knobs)}"


def answer_lines(answer: Answer) -> list[str]:
    """The recommendation, the task's own fleet, and what they rest on."""
    lines = [f"  promised     {promise.text}" for promise in answer.own.promises]
    lines += [f"  IMPOSSIBLE   {text}" for text in answer.impossible]
    if answer.recommended is None:
        lines.append(f"  recommended  none: {no_fleet_text(answer)}")
    else:
        best = answer.recommended
        lines.append(f"  recommended  {fleet_text(best)}; {best.usd_per_million_output_tokens:.3f} USD/M output tokens")
        lines += [f"               {line}" for line in _promise_lines(best)]
    verdict = "keeps every promise" if answer.own.is_kept else "DOES NOT keep every promise"
    lines.append(f"  own fleet    {verdict}: {fleet_text(answer.own)}")
    lines += [f"               {line}" for line in _promise_lines(answer.own)]
    for name, fleet in (("default_knobs", answer.default_knobs), ("vllm_defaults", answer.vllm_defaults)):
        worst = fleet.worst
        lines.append(f"  own fleet    with {name}: {worst.value_text} ({worst.text})")
    return [*lines, *_basis_lines(answer)]


def no_fleet_text(answer: Answer) -> str:
    """Why there is no recommendation, and what to do."""
    if answer.impossible:
        return "no fleet can keep what even an idle one breaks; raise that SLO, or choose a faster GPU or tier"
    return f"no fleet of up to {answer.protocol['max_replicas']} GPUs; raise --max-replicas or the SLO"


def _promise_lines(fleet: Followed) -> list[str]:
    return [
        f"{'kept' if promise.is_kept else 'BROKEN'} on fresh traffic: {promise.value_text} ({promise.text})"
        for promise in fleet.promises
    ]


def _basis_lines(answer: Answer) -> list[str]:
    confidence = answer.protocol["confidence"]
    again = "" if answer.rounds == 0 else f"; {answer.rounds} earlier recommendation(s) did not hold and were replaced"
    return [
        f"  seeds        searched on {answer.search_seeds}, verified on {answer.fresh_seeds}{again}; each bound in "
        f"brackets holds with {confidence:.0%} confidence",
        *(f"  price        {text}" for text in answer.prices),
    ]


def capacity_lines(answer: Answer) -> list[str]:
    """The smallest fleet of every GPU and tier."""
    head = f"  {'GPU':<24}{'tier':<6}{'GPUs':>5}{'USD/h':>9}  {'worst promise in the search':<32}configuration"
    return [head, *(_option_line(option) for option in answer.options)] if answer.options else []


def _option_line(option: Option) -> str:
    gpu = option.profile.split("/")[-1].split(".")[0]
    best = option.best
    if best is None:
        last = option.points[-1]
        return f"  {gpu:<24}{option.tier_name:<6}{'–':>5}{'–':>9}  not with {last.replicas}: {last.worst.value_text}"
    remark = "" if option.is_monotone else "  (not monotone: every smaller fleet was simulated)"
    return (
        f"  {gpu:<24}{option.tier_name:<6}{best.replicas:>5}{best.usd_per_hour:>9.2f}  {best.worst.value_text:<32}"
        f"{knobs_text(best.knobs)}{remark}"
    )
