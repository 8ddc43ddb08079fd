"""Rewrite the generated tables in README.md and docs/ from the code: `python -m tools.build_docs [--check]`.

A block stands between `<!-- generated: NAME -->` and `<!-- end -->`; what is between them comes from `BLOCKS[NAME]`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.markdown import table
from llmserve_env.agents.policy import GENERALIST
from llmserve_env.engine.knobs import KNOBS, Knob
from llmserve_env.env.features import FEATURES
from llmserve_env.models import ServeObservation
from llmserve_env.server.settings import Settings
from llmserve_env.tasks.catalog import BENCHMARK, load_task
from llmserve_env.workloads import describe

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def knob_table() -> str:
    """The action."""
    rows = [
        [f"`{knob.name}`", knob.allowed, _default(knob), f"`{knob.alias}`" if knob.alias else "–", knob.meaning]
        for knob in KNOBS
    ]
    return table(["knob", "allowed", "default", "alias", "what it does"], rows)


def _default(knob: Knob) -> str:
    if knob.default is None:
        return "as the deployment was started"
    shown = str(knob.wire(knob.default))
    return shown if knob.kind == "tier" else shown.lower()


def observation_table() -> str:
    """Fields of the wire observation."""
    fields = ServeObservation.model_fields.items()
    return table(["field", "meaning"], [[f"`{name}`", field.description or "–"] for name, field in fields])


def feature_table() -> str:
    """The RL observation vector."""
    return table(["#", "feature", "scale"], [[str(i), f"`{name}`", how] for i, (name, how) in enumerate(FEATURES)])


def task_table() -> str:
    """The benchmark's tasks side by side."""
    tasks = [load_task(name) for name in BENCHMARK]
    loads = [describe(task.workload) for task in tasks]

    def fleet(index: int) -> str:
        d = tasks[index].deployment
        extra = f" (+{d.prefill_replicas} prefill when split)" if d.prefill_replicas else ""
        return f"{d.replicas} × {d.profile.split('.')[0]}{extra}"

    columns = range(len(tasks))
    rows = [
        ["Gymnasium id", *(f"`{task.gym_id}`" for task in tasks)],
        ["difficulty", *(task.difficulty for task in tasks)],
        ["fleet", *(fleet(i) for i in columns)],
        ["traffic, mean (peak)", *(f"{load.mean_rps:.0f} ({load.peak_rps:.0f}) rps" for load in loads)],
        [
            "prompt / output tokens, mean",
            *(f"{load.mean_prompt_tokens:.0f} / {load.mean_output_tokens:.0f}" for load in loads),
        ],
        [
            "TTFT SLO",
            *(", ".join(f"{c.name} {c.ttft_slo_ms:g} ms" for c in task.workload.classes) for task in tasks),
        ],
        ["memory limit per GPU", *(f"{task.deployment.memory_limit_gb:g} GB" for task in tasks)],
        ["active knobs", *(", ".join(f"`{name}`" for name in task.knobs.active) for task in tasks)],
        ["teaches", *(task.teaches for task in tasks)],
    ]
    return table(["", *(f"`{task.id}`" for task in tasks)], rows)


REWARD_TERMS = {
    "throughput": (
        "α",
        "goodput: answers within their SLO, by value of their class and tier, over the traffic offered",
    ),
    "latency": ("−β", "mean of the wait for the first token over its SLO and the slowness of the stream"),
    "violations": ("−γ", "share of requests that missed their SLO, judged once each"),
    "cost": ("−δ", "bill of busy GPU time and reserved memory, between an idle and a full fleet"),
    "memory": ("−ε", "KV budget in force, or preemptions; 1 after running out of memory"),
}


def reward_table() -> str:
    """Terms of the reward and their weights."""
    tasks = [load_task(name) for name in BENCHMARK]
    rows = [
        [f"`{term}`", sign, meaning, *(f"{getattr(task.reward.weights, term):g}" for task in tasks)]
        for term, (sign, meaning) in REWARD_TERMS.items()
    ]
    return table(["term, 0 to 1", "weight", "of one window", *(task.id.split("_")[0] for task in tasks)], rows)


def settings_table() -> str:
    """The server's settings."""
    rows = []
    for name, field in Settings.model_fields.items():
        default = "the user's data folder" if field.default_factory else f"`{json.dumps(field.default)}`"
        rows.append([f"`LLMSERVE_{name.upper()}`", default, field.description or "–"])
    return table(["variable", "default", "meaning"], rows)


def policy_table() -> str:
    """The shipped policies, from their cards."""
    rows = []
    for name in (*BENCHMARK, GENERALIST):
        card = json.loads((ROOT / "llmserve_env" / "weights" / name / "ppo.json").read_text(encoding="utf-8"))
        score = f"{card['score']['mean']:.3f}"
        rows.append([f"`weights/{name}`", f"`{card['command']}`", f"{card['best_step']:,}", score])
    return table(["policy", "command", "best step", "score on tuning seeds"], rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "policies": policy_table,
    "settings": settings_table,
    "knobs": knob_table,
    "observation": observation_table,
    "features": feature_table,
    "reward": reward_table,
    "tasks": task_table,
}


def rebuilt(text: str) -> str:
    """The document with every block as the code has it; other generated blocks are left to their own commands."""

    def block(match: re.Match[str]) -> str:
        make = BLOCKS.get(match["name"])
        return match[0] if make is None else f"{match[1]}{make()}\n{match[3]}"

    return BLOCK.sub(block, text)


def main() -> int:
    """Rewrite, or with --check say which documents are out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a document is out of date")
    arguments = parser.parse_args()
    stale = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        fresh = rebuilt(text)
        if fresh != text:
            stale.append(str(path.relative_to(ROOT)))
            if not arguments.check:
                path.write_text(fresh, encoding="utf-8")
    if stale:
        print(f"{'out of date' if arguments.check else 'rewritten'}: {', '.join(stale)}", file=sys.stderr)
    return 1 if stale and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
