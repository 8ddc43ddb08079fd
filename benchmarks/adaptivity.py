"""Is there something to learn? `python -m benchmarks.adaptivity [--json] [--search]`.

Scores on evaluation seeds, which no search has seen: a random agent, the default knobs, vLLM's defaults, the best
constant, a reactive rule and the best adaptive control known; what each knob adds of its own; and a sweep of each knob
with the others at their defaults. `--search` finds rules and constants again instead of using the kept ones.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.adaptive_rule import Rule, RuleAgent
from benchmarks.adaptivity_data import found
from llmserve_env.agents.agent import Agent
from llmserve_env.agents.constant import ConstantAgent
from llmserve_env.agents.registry import make_agent
from llmserve_env.engine.knobs import named
from llmserve_env.evaluation.evaluate import EpisodeResult, result_of
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.evaluation.statistics import summarise
from llmserve_env.tasks.catalog import BENCHMARK, load_task
from llmserve_env.tasks.task import Task

DEFAULTS = ("default_knobs", "vllm_defaults")
NUM_SEEDS = 24
NUM_SWEEP_SEEDS = 4
KV_CONSTANTS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8)
SWEPT_COMPONENTS = ("slo", "ttft", "itl", "cost", "memory")


def results(agent: Agent, task: Task, num_seeds: int, use: str = "evaluation") -> list[EpisodeResult]:
    """Graded episodes on the first seeds of a range."""
    return [result_of(agent.name, episode) for episode in play(agent, task, SEED_RANGES[use][:num_seeds])]


def interval(values: list[float]) -> dict[str, Any]:
    """Mean and its 95 % interval."""
    statistics = summarise(values)
    low, high = statistics.ci95
    return {"mean": round(statistics.mean, 4), "ci95": [round(low, 4), round(high, 4)]}


def summary(agent: Agent, task: Task, num_seeds: int) -> dict[str, Any]:
    """Score and return of an agent."""
    played = results(agent, task, num_seeds)
    returns = interval([r.total_reward for r in played])
    components = {name: round(float(np.mean([r.breakdown[name] for r in played])), 3) for name in played[0].breakdown}
    return {**interval([r.score for r in played]), "return": returns, "components": components}


def frozen_variants(rule: Rule, knob: str) -> list[Rule]:
    """The rule with one knob held at each of a few constants."""
    match knob:
        case "batch_cap":
            return [replace(rule, cap_calm=cap, cap_surge=cap) for cap in (rule.cap_calm, rule.cap_surge)]
        case "kv_budget_fraction":
            return [replace(rule, kv_gain=0.0, kv_margin=0.0, kv_calm=kv, kv_surge=kv) for kv in KV_CONSTANTS]
        case "speculation_depth":
            always = replace(rule, min_acceptance=0.0, max_running=10**6)
            return [replace(rule, depth_calm=0), replace(always, surge_load=np.inf)]
        case "quantization_tier":
            return [replace(rule, tier_calm=tier, tier_surge=tier) for tier in (0, 1)]
        case _:
            return []


def own_gains(task: Task, rule: Rule, adaptive: float, span: float, num_seeds: int) -> dict[str, float]:
    """What turning each knob adds: the loss when it alone is held at its best constant (chosen on tuning seeds)."""
    gains: dict[str, float] = {}
    for knob in task.knobs.active:
        variants = [RuleAgent(variant, foresight=True) for variant in frozen_variants(rule, knob)]
        if variants:
            tuned = [np.mean([r.score for r in results(agent, task, 4, "tuning")]) for agent in variants]
            best = variants[int(np.argmax(tuned))]
            held = float(np.mean([r.score for r in results(best, task, num_seeds)]))
            gains[knob] = round((adaptive - held) / span, 4)
    return gains


def sweep(task: Task) -> list[dict[str, Any]]:
    """Each active knob over its levels, the others at their defaults."""
    rows = []
    for knob in task.knob_table:
        if knob.name not in task.knobs.active:
            continue
        for level in knob.levels:
            knobs = task.default_knobs
            named(knobs)[knob.name] = level
            played = results(ConstantAgent(knobs), task, NUM_SWEEP_SEEDS, "tuning")
            row = {"knob": knob.name, "value": level, "score": round(float(np.mean([r.score for r in played])), 3)}
            row["reward"] = round(float(np.mean([r.total_reward for r in played])) / task.steps, 4)
            row["throughput_tps"] = round(float(np.mean([r.throughput_tps for r in played])), 1)
            row |= {n: round(float(np.mean([r.breakdown[f"{n}_raw"] for r in played])), 3) for n in SWEPT_COMPONENTS}
            rows.append(row)
    return rows


def examine(task: Task, num_seeds: int) -> dict[str, Any]:
    """Bars 1 to 3 on one task."""
    kept = found()["tasks"][task.id]
    rule = Rule.from_mapping(kept["adaptive"])
    agents: dict[str, Agent] = {
        "random": make_agent("random"),
        **{name: make_agent(name) for name in DEFAULTS},
        "best_constant": ConstantAgent(task.knobs_from_mapping(kept["constant"])),
        "reactive": RuleAgent(Rule.from_mapping(kept["reactive"]), foresight=False),
        "best_adaptive": RuleAgent(rule, foresight=True),
    }
    report: dict[str, Any] = {name: summary(agent, task, num_seeds) for name, agent in agents.items()}
    adaptive = report["best_adaptive"]["mean"]
    span = adaptive - report["random"]["mean"]
    report["adaptive_gain"] = round((adaptive - report["best_constant"]["mean"]) / span, 4)
    report["own_gain"] = own_gains(task, rule, adaptive, span, num_seeds)
    report["sweep"] = sweep(task)
    return report


def as_text(report: dict[str, Any]) -> str:
    """The report as tables."""
    lines = []
    for name, task in report["tasks"].items():
        lines += [f"### {name}", "", "| control | score | 95 % interval | return |", "|---|---|---|---|"]
        for agent in ("random", *DEFAULTS, "best_constant", "reactive", "best_adaptive"):
            row = task[agent]
            low, high = row["ci95"]
            lines.append(f"| {agent} | {row['mean']:.3f} | {low:.3f} to {high:.3f} | {row['return']['mean']:.1f} |")
        gains = ", ".join(f"{knob} {gain:+.3f}" for knob, gain in task["own_gain"].items())
        lines += ["", f"Gain of adapting: {task['adaptive_gain']:.1%} of the range. Of each knob alone: {gains}.", ""]
        columns = list(task["sweep"][0])
        lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        lines += ["| " + " | ".join(str(row[c]) for c in columns) + " |" for row in task["sweep"]]
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="JSON instead of tables")
    parser.add_argument("--search", action="store_true", help="search again (about 40 minutes on one core)")
    parser.add_argument("--task", action="append", choices=BENCHMARK, help="only this task")
    parser.add_argument("--seeds", type=int, default=NUM_SEEDS, help="held-out seeds")
    args = parser.parse_args()
    names = tuple(args.task or BENCHMARK)
    if args.search:
        from benchmarks.adaptivity_search import search_everything

        search_everything(names)
    report = {"tasks": {name: examine(load_task(name), args.seeds) for name in names}}
    print(json.dumps(report, indent=2) if args.json else as_text(report))


if __name__ == "__main__":
    main()
