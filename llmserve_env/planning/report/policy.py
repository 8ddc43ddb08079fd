"""What a policy does, and when: its knobs by how much traffic had just arrived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llmserve_env.engine.knobs import NAMES, named
from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.tasks.task import Task

LEVELS = (("quiet", 0.0, 1 / 3), ("usual", 1 / 3, 0.8), ("busy", 0.8, 1.0))
"""Name, and the quantiles of arriving tokens between which a window belongs to it."""
NOTABLE = 0.15
"""Relative change between quiet and busy from which a knob is said to move."""

NEVER = 0.005
"""Share of windows below which something is said never to happen."""
SELDOM = 0.05
"""Mean speculation depth below which a policy is said not to draft."""


@dataclass(frozen=True, slots=True)
class TrafficLevel:
    """Windows after traffic of one level."""

    name: str
    rate_rps: float
    prompt_tps: float
    knobs: dict[str, float]
    """Mean of each knob; for the tier, its most frequent value."""
    tier_shares: dict[str, float]
    attainment: float


def traffic_levels(episodes: Sequence[PlayedEpisode]) -> list[TrafficLevel]:
    """The policy's knobs in quiet, usual and busy windows; each choice is set against the window before it."""
    window_s, offered = episodes[0].task.window_s, episodes[0].task.fleet.costs.tiers
    arrived = np.concatenate([e.trajectory.window["arrived_prompt_tokens"][:-1] for e in episodes])
    requests = np.concatenate([e.trajectory.window["arrived"][:-1] for e in episodes])
    knobs = named(np.concatenate([e.trajectory.knobs[1:] for e in episodes]))
    slo = np.concatenate([e.trajectory.terms["slo"][1:] for e in episodes])
    rank = np.argsort(np.argsort(arrived, kind="stable"), kind="stable") / max(len(arrived) - 1, 1)
    levels = []
    for name, low, high in LEVELS:
        rows = (rank >= low) & ((rank < high) | (high == 1.0))
        chosen = knobs["quantization_tier"][rows]
        tiers = {TIER_NAMES[n]: float((chosen == n).sum() / max(len(chosen), 1)) for n in offered}
        levels.append(
            TrafficLevel(
                name,
                float(requests[rows].mean() / window_s),
                float(arrived[rows].mean() / window_s),
                {name: float(knobs[name][rows].mean()) for name in NAMES},
                tiers,
                float(slo[rows].mean()),
            )
        )
    return levels


def sentences(task: Task, levels: Sequence[TrafficLevel]) -> list[str]:
    """What changes from quiet to busy, in words."""
    quiet, busy = levels[0], levels[-1]
    said = []
    for name, words in (("batch_cap", "batch cap"), ("kv_budget_fraction", "KV budget")):
        if name in task.knobs.active:
            said.append(
                _moves(words, quiet.knobs[name], busy.knobs[name], "{:.0f}" if name == "batch_cap" else "{:.0%}")
            )
    if "speculation_depth" in task.knobs.active:
        before, after = quiet.knobs["speculation_depth"], busy.knobs["speculation_depth"]
        is_seldom = max(before, after) < SELDOM
        said.append("It hardly ever drafts tokens." if is_seldom else _moves("mean speculation depth", before, after))
    if "quantization_tier" in task.knobs.active:
        said.append(_tiers(quiet, busy))
    if "prefill_decode_split" in task.knobs.active:
        said.append(_share("prefill replicas are split off", quiet, busy, "prefill_decode_split"))
    if "priority_routing" in task.knobs.active and len(task.workload.classes) > 1:
        said.append(_share("urgent classes go first", quiet, busy, "priority_routing"))
    return said


def _moves(words: str, quiet: float, busy: float, how: str = "{:.1f}") -> str:
    before, after = how.format(quiet), how.format(busy)
    if before == after or abs(busy - quiet) <= NOTABLE * max(abs(quiet), abs(busy)):
        return f"The {words} stays about {after} whatever the traffic."
    return f"The {words} {'rises' if busy > quiet else 'falls'} from {before} in quiet windows to {after} in busy ones."


def _tiers(quiet: TrafficLevel, busy: TrafficLevel) -> str:
    main = [max(level.tier_shares, key=level.tier_shares.__getitem__) for level in (quiet, busy)]
    shares = [level.tier_shares[tier] for level, tier in zip((quiet, busy), main, strict=True)]
    if main[0] == main[1]:
        return f"{main[0]} serves {shares[0]:.0%} of quiet and {shares[1]:.0%} of busy windows."
    return f"{main[0]} serves most quiet windows ({shares[0]:.0%}), {main[1]} most busy ones ({shares[1]:.0%})."


def _share(words: str, quiet: TrafficLevel, busy: TrafficLevel, name: str) -> str:
    if max(quiet.knobs[name], busy.knobs[name]) < NEVER:
        return f"It never happens that {words}."
    if min(quiet.knobs[name], busy.knobs[name]) < NEVER:
        level = max((quiet, busy), key=lambda one: one.knobs[name])
        return f"Only in {level.name} windows ({level.knobs[name]:.0%} of them) {words}."
    return f"In {quiet.knobs[name]:.0%} of quiet and {busy.knobs[name]:.0%} of busy windows {words}."
