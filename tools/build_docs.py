"""Rewrite the generated tables in README.md and docs/ from the code: `python -m tools.build_docs [--check]`.

The text between `<!-- generated: NAME -->` and `<!-- end -->` is replaced by the output of `BLOCKS[NAME]`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from benchmarks.markdown import markdown_table
from llmserve_env.agents.policy import GENERALIST
from llmserve_env.agents.registry import AGENTS
from llmserve_env.engine.knobs import KNOBS, Knob
from llmserve_env.env.features import features_of
from llmserve_env.models import ServeObservation
from llmserve_env.server.settings import Settings
from llmserve_env.tasks.catalog import BENCHMARK, load_task
from llmserve_env.workloads import describe

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def knob_table() -> str:
    """Table of the knobs."""
    rows = [
        [f"`{knob.name}`", knob.allowed, _default(knob), f"`{knob.alias}`" if knob.alias else "–", knob.meaning]
        for knob in KNOBS
    ]
    return markdown_table(["knob", "allowed", "default", "alias", "what it does"], rows)


def _default(knob: Knob) -> str:
    if knob.default is None:
        return "as the deployment was started"
    shown = str(knob.wire(knob.default))
    return shown if knob.kind == "tier" else shown.lower()


def observation_table() -> str:
    """Table of the wire observation's fields."""
    fields = ServeObservation.model_fields.items()
    return markdown_table(["field", "meaning"], [[f"`{name}`", field.description or "–"] for name, field in fields])


def feature_table() -> str:
    """Table of the RL observation vector."""
    return markdown_table(
        ["#", "feature", "scale"],
        [
            [str(i), f"`{name}`", how]
            for i, (name, how) in enumerate(features_of(load_task("static_workload").action_knobs))
        ],
    )


def task_table() -> str:
    """Table of the core suite's tasks."""
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
    return markdown_table(["", *(f"`{task.id}`" for task in tasks)], rows)


REWARD_TERMS = {
    "throughput": (
        "α",
        "goodput: requests that met their SLO, weighted by the value of class and tier, over offered traffic",
    ),
    "latency": ("−β", "mean of the time to first token (relative to its SLO) and the slowness of the token stream"),
    "violations": ("−γ", "share of requests that missed their SLO; each request is judged once"),
    "cost": ("−δ", "bill for GPUs in service, scaled from the base fleet to every GPU; 0 where the fleet cannot grow"),
    "memory": ("−ε", "preemptions over running and waiting requests; 1 after running out of memory"),
}


def reward_table() -> str:
    """Table of the reward terms and their weights."""
    tasks = [load_task(name) for name in BENCHMARK]
    rows = [
        [f"`{term}`", sign, meaning, *(f"{getattr(task.reward.weights, term):g}" for task in tasks)]
        for term, (sign, meaning) in REWARD_TERMS.items()
    ]
    return markdown_table(
        ["term, 0 to 1", "weight", "meaning, for one window", *(task.id.split("_")[0] for task in tasks)], rows
    )


def settings_table() -> str:
    """Table of the server's settings."""
    rows = []
    for name, field in Settings.model_fields.items():
        default = "the user's data folder" if field.default_factory else f"`{json.dumps(field.default)}`"
        rows.append([f"`LLMSERVE_{name.upper()}`", default, field.description or "–"])
    return markdown_table(["variable", "default", "meaning"], rows)


def policy_table() -> str:
    """Table of the shipped policies, from their cards."""
    rows = []
    for name in (*BENCHMARK, GENERALIST):
        card = json.loads((ROOT / "llmserve_env" / "weights" / name / "ppo.json").read_text(encoding="utf-8"))
        score = f"{card['score']['mean']:.3f}"
        rows.append([f"`{name}`", f"`{card['command']}`", f"{card['best_step']:,}", score])
    return markdown_table(["policy", "command", "best step", "score on tuning seeds"], rows)


def agent_table() -> str:
    """Table of the agents."""
    return markdown_table(
        ["name", "what it does", "what it sees"],
        [[f"`{name}`", entry.does, entry.sees] for name, entry in AGENTS.items()],
    )


def mission_table() -> str:
    """What was asked for, what is here, and why: a row per test in tests/mission."""
    found = import_module("tests.mission.load_all").rows()
    rows = [[_cell(row.asked), _cell(row.here), _cell(row.why)] for row in found]
    return markdown_table(["asked", "here", "why, where they differ"], rows)


def _cell(text: str) -> str:
    return text.strip("| ").replace("|", "·")


def page(name: str) -> str:
    """A page of docs/ as a part of another one at the root: headings one level down, links from the root."""
    text = re.sub(r"<!-- .*? -->\n?", "", (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"))
    text = re.sub(r"\]\((?!https?:|#|\.\./)", "](docs/", text).replace("](../", "](")
    return re.sub(r"^#", "##", text, flags=re.MULTILINE).strip()


def endpoint_table() -> str:
    """The table of endpoints in docs/server.md."""
    return next(part for part in page("server").split("\n\n") if part.startswith("| endpoint"))


BLOCKS: dict[str, Callable[[], str]] = {
    "mission": mission_table,
    "page-environment": lambda: page("environment"),
    "page-metrics": lambda: page("metrics"),
    "endpoints": endpoint_table,
    "agents": agent_table,
    "policies": policy_table,
    "settings": settings_table,
    "knobs": knob_table,
    "observation": observation_table,
    "features": feature_table,
    "reward": reward_table,
    "tasks": task_table,
}


def documents() -> list[Path]:
    """What is rebuilt; the specification is made of pages of docs/, so it comes after them."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "ENVIRONMENT.md"]


def rebuilt(text: str) -> str:
    """The document with every block regenerated; blocks that other commands write stay as they are."""

    def block(match: re.Match[str]) -> str:
        make = BLOCKS.get(match["name"])
        return match[0] if make is None else f"{match[1]}{make()}\n{match[3]}"

    return BLOCK.sub(block, text)


def main() -> int:
    """Rewrite the documents, or with --check list those that are out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a document is out of date")
    arguments = parser.parse_args()
    stale = []
    for path in documents():
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
