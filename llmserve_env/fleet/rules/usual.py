"""Usual values of a task's signals, from its description: what a rule's weights are relative to."""

from __future__ import annotations

from math import exp

from llmserve_env.fleet.sections import KindSpec, LengthSpec
from llmserve_env.fleet.task import FleetTask

RUNNING_PER_REPLICA = 16.0
"""Requests in a usual batch; only a unit, since a weight multiplies it."""


def _mean(spec: LengthSpec | None) -> float:
    return 0.0 if spec is None else spec.median * exp(spec.sigma**2 / 2)


def _session_s(kind: KindSpec) -> float:
    """Mean time from the first turn of a session to its last."""
    gap_s = kind.gap_s * exp(kind.gap_sigma**2 / 2)
    setup_s = kind.setup_s * exp(kind.setup_sigma**2 / 2) if kind.setup_s else gap_s
    return setup_s + max(kind.turns - 2.0, 0.0) * gap_s if kind.turns > 1.0 else 0.0


def usual_figures(task: FleetTask) -> dict[str, float]:
    """Each signal at the task's mean load, and at least a little above zero, to divide by."""
    mean_rps, kinds = task.traffic_spec.mean_rps, task.traffic_spec.kinds
    found = dict.fromkeys(("new_prompt_tps", "prompt_tps", "output_tps", "session_start_rps", "open_sessions"), 0.0)
    for kind in kinds:
        sessions_rps = mean_rps * kind.share / kind.turns
        opening, added, output = _mean(kind.opening), _mean(kind.added), _mean(kind.output)
        later = kind.turns - 1.0
        found["new_prompt_tps"] += sessions_rps * (opening + later * added)
        # Turn k repeats the opening, and k - 1 additions and outputs.
        repeated = later * (opening + output) + later * (later - 1.0) / 2.0 * (added + output)
        found["prompt_tps"] += sessions_rps * (opening + later * added + repeated)
        found["output_tps"] += sessions_rps * kind.turns * output
        if kind.turns > 1.0:
            found["session_start_rps"] += sessions_rps
            found["open_sessions"] += sessions_rps * _session_s(kind)
    found["request_rps"] = mean_rps
    found["running"] = RUNNING_PER_REPLICA * sum(pool.usual_replicas for pool in task.pools)
    return {name: max(value, 1e-6) for name, value in found.items()}
