"""The simulator beside published closed-loop measurements of vLLM servers (`python -m benchmarks.published`).

Every row that can be expressed is played with a composed or shipped profile. Nothing is fitted on the rows that are
predicted; the constants of the host come from the rows of other deployments (`published_host`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.closed_loop import LoopResult, Server, closed_loop
from benchmarks.markdown import markdown_table
from benchmarks.published_cases import Case, read_cases
from benchmarks.published_host import PublishedHost, fit_published_host
from llmserve_env.engine.deployment import MAX_RUNNING
from llmserve_env.engine.tiers import TIER_NUMBERS
from llmserve_env.errors import ProfileError
from llmserve_env.profiles import Profile
from llmserve_env.profiles.memory import engine_memory
from llmserve_env.profiles.serving import served_profile

DEFAULT_CASES = Path(__file__).resolve().parents[2] / "shared" / "published" / "vllm_silicon.csv"
METRICS = ("tpot", "ttft")
Row = tuple[Case, LoopResult]


def main() -> None:
    """Play the rows and print the errors."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published", description=__doc__)
    parser.add_argument("--cases", type=Path, default=DEFAULT_CASES, help="CSV of published rows")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--reasons", action="store_true", help="also say why rows cannot be expressed")
    arguments = parser.parse_args()
    if not arguments.cases.is_file():
        raise SystemExit(f"no cases at {arguments.cases}: give a CSV with --cases")
    cases, refused = read_cases(arguments.cases)
    total = len(cases) + len(refused)
    played, more = playable(cases)
    rows = predicted(played)
    report = summary(rows, total)
    if arguments.json:
        print(json.dumps(report, indent=1))
    else:
        print(text(report))
    if arguments.reasons:
        print("\n".join(sorted({*refused, *more})))


def playable(cases: Sequence[Case]) -> tuple[list[Case], list[str]]:
    """Rows whose deployment has a profile and whose load the simulator can hold, and the reasons of the others."""
    kept, reasons = [], []
    for case in cases:
        try:
            if case.load.concurrency > MAX_RUNNING:
                raise ProfileError(f"{case.load.concurrency} requests in flight; at most {MAX_RUNNING} run at once")
            pool, longest = _pool_tokens(case, served_profile(case.gpu, case.served)), case.load.longest
            if pool < longest:
                raise ProfileError(f"a KV pool of {pool} tokens does not hold a request of {longest}")
            kept.append(case)
        except ProfileError as error:
            reasons.append(f"{case.model} on {case.system}: {error}")
    return kept, reasons


def play(case: Case, host: PublishedHost, profile: Profile | None = None) -> LoopResult:
    """One row on the simulator, with the composed profile or another one."""
    profile, tier = profile or served_profile(case.gpu, case.served), case.served.weights
    server = Server(
        costs=profile.costs().serving(TIER_NUMBERS[tier]),
        host=host.costs(profile.model, case.load),
        is_async=case.is_async,
        token_budget=case.token_budget,
        kv_tokens=_pool_tokens(case, profile),
    )
    return closed_loop(server, case.load)


def _pool_tokens(case: Case, profile: Profile) -> int:
    """Tokens of KV cache that vLLM would find room for."""
    return engine_memory(profile, case.served.weights, case.token_budget, case.load.concurrency).pool_tokens()


def hosts_of_others(cases: Sequence[Case]) -> dict[tuple[Any, bool], PublishedHost]:
    """For every group and kind of scheduling, the host of the other groups of that kind."""
    plain = [(case, play(case, PublishedHost())) for case in cases]
    return {
        (group, is_async): fit_published_host(
            [row for row in plain if row[0].group != group and row[0].is_async == is_async]
        )
        for group, is_async in dict.fromkeys((case.group, case.is_async) for case in cases)
    }


def predicted(cases: Sequence[Case]) -> list[Row]:
    """Every row with the host of the other groups of its kind of scheduling."""
    hosts = hosts_of_others(cases)
    return [(case, play(case, hosts[case.group, case.is_async])) for case in cases]


def summary(rows: Sequence[Row], total: int) -> dict[str, Any]:
    """The report: errors per (model, system, precision) and overall, with the peer's on the same rows."""
    labels = sorted({case.label for case, _ in rows})
    groups = []
    for label in labels:
        own = [row for row in rows if row[0].label == label]
        names = dict(zip(("model", "system", "precision"), label, strict=True))
        groups.append({**names, "rows": len(own), **_errors(own), "peer": _peer_errors(own)})
    kinds = {
        kind: {"rows": len(own), **_errors(own), "peer": _peer_errors(own)}
        for kind in ("dense", "experts", "latent")
        if (own := [row for row in rows if row[0].served.model.kind == kind])
    }
    return {
        "rows": total,
        "expressible": len(rows),
        "groups": groups,
        "kinds": kinds,
        "overall": _errors(rows),
        "peer": _peer_errors(rows),
    }


def _errors(rows: Sequence[Row]) -> dict[str, Any]:
    return {name: _figures([(getattr(r, f"{name}_ms"), getattr(c, f"{name}_ms")) for c, r in rows]) for name in METRICS}


def _peer_errors(rows: Sequence[Row]) -> dict[str, Any]:
    found = {}
    for name in METRICS:
        pairs = [(getattr(case, f"peer_{name}_ms"), getattr(case, f"{name}_ms")) for case, _ in rows]
        found[name] = _figures([pair for pair in pairs if pair[0] is not None])
    return found


def _figures(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    if not pairs:
        return {}
    errors = [abs(simulated / published - 1.0) for simulated, published in pairs]
    return {"median": round(float(np.median(errors)), 4), "p90": round(float(np.percentile(errors, 90)), 4)}


def text(report: dict[str, Any]) -> str:
    """The report as a table."""

    def cells(found: dict[str, Any]) -> list[str]:
        figures = [found[name] for name in METRICS] + [found["peer"][name] for name in METRICS]
        return [f"{f['median']:.1%} ({f['p90']:.0%})" if f else "–" for f in figures]

    rows = [[g["model"], g["system"], g["precision"], str(g["rows"]), *cells(g)] for g in report["groups"]]
    rows += [[f"all {kind}", "", "", str(found["rows"]), *cells(found)] for kind, found in report["kinds"].items()]
    rows += [["all", "", "", str(report["expressible"]), *cells({**report["overall"], "peer": report["peer"]})]]
    header = ["model", "system", "precision", "rows", "TPOT", "TTFT", "peer's TPOT", "peer's TTFT"]
    share = report["expressible"] / max(report["rows"], 1)
    told = f"{report['expressible']} of {report['rows']} rows expressed ({share:.0%}). Absolute errors, median (p90)."
    return f"{told}\n\n{markdown_table(header, rows)}"


if __name__ == "__main__":
    main()
