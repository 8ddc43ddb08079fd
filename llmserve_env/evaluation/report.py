"""Results as text, JSON, CSV and Markdown, with the command, seeds, versions and commit that made them."""

from __future__ import annotations

import csv
import io
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from llmserve_env.agents.registry import CEILINGS
from llmserve_env.evaluation.evaluate import EpisodeResult
from llmserve_env.evaluation.statistics import Summary, gap_closed, summarise
from llmserve_env.request_outcomes import LatencyFigures, RequestFigures, latency_text, pooled_figures
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION

COLUMNS = {
    "score": "score",
    "return": "total_reward",
    "slo_attainment": "slo_attainment",
    "throughput_tps": "throughput_tps",
    "cost_usd": "cost_usd",
}
"""Name in reports -> field of an `EpisodeResult`."""

MIN_GAP = 0.05
"""Score between tuned constant and ceiling below which the share that an agent closes says nothing."""

AGENT_WIDTH = 16
"""Width of the column of agents in tables for terminals, unless a name is longer."""

Summaries = dict[str, dict[str, dict[str, Summary]]]
"""Agent -> task -> figure -> statistics, in the order played."""


RequestTables = dict[str, dict[str, RequestFigures]]
"""Agent -> task -> figures of the requests of all its episodes together."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """What it takes to reproduce results."""

    command: str
    seeds: str
    commit: str
    environment_version: str
    task_versions: dict[str, int]


def commit_of(folder: Path) -> str:
    """The commit checked out in a folder, `-dirty` when tracked files differ from it; `unknown` outside of git."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):  # installed from a wheel, or no git on the machine
        return "unknown"
    return found.stdout.strip()


def provenance(command: str, seeds: Sequence[int], tasks: Sequence[Task]) -> Provenance:
    """The provenance of results just made with the installed package."""
    return Provenance(
        command=command,
        seeds=f"{min(seeds)}..{max(seeds)}",
        commit=commit_of(Path(__file__).resolve().parent),
        environment_version=ENVIRONMENT_VERSION,
        task_versions={task.id: task.version for task in tasks},
    )


def tabulate(results: Sequence[EpisodeResult]) -> Summaries:
    """Statistics over the seeds of each agent and task."""
    return {
        agent: {
            task: {name: summarise([getattr(r, field) for r in rows]) for name, field in COLUMNS.items()}
            for task, rows in tasks.items()
        }
        for agent, tasks in _grouped(results).items()
    }


def pool_requests(results: Sequence[EpisodeResult]) -> RequestTables:
    """Latency percentiles and losses of each agent and task, over the requests of all seeds."""
    return {
        agent: {task: pooled_figures([r.requests for r in rows]) for task, rows in tasks.items()}
        for agent, tasks in _grouped(results).items()
    }


def _grouped(results: Sequence[EpisodeResult]) -> dict[str, dict[str, list[EpisodeResult]]]:
    grouped: dict[str, dict[str, list[EpisodeResult]]] = {}
    for result in results:
        grouped.setdefault(result.agent, {}).setdefault(result.task_id, []).append(result)
    return grouped


def text_table(summaries: Summaries) -> str:
    """A table for terminals, with a row per agent and task."""
    wide = _agent_width(summaries)
    head = (
        f"{'task':<26}{'agent':<{wide}}{'score':>7}  {'95 % interval':<17}{'IQM':>6}"
        f"{'return':>9}{'SLO':>7}{'tok/s':>8}{'USD':>8}"
    )
    lines = [head, "-" * len(head)]
    for task in dict.fromkeys(task for tasks in summaries.values() for task in tasks):
        for agent, tasks in summaries.items():
            if task not in tasks:
                continue
            row, score = tasks[task], tasks[task]["score"]
            label = f"{agent} *" if agent in CEILINGS else agent
            interval = f"[{score.ci95[0]:.3f}, {score.ci95[1]:.3f}]"
            lines.append(
                f"{task:<26}{label:<{wide}}{score.mean:>7.3f}  {interval:<17}{score.iqm:>6.3f}"
                f"{row['return'].mean:>9.2f}{row['slo_attainment'].mean:>7.1%}{row['throughput_tps'].mean:>8.0f}"
                f"{row['cost_usd'].mean:>8.3f}"
            )
    if any(agent in CEILINGS for agent in summaries):
        lines.append("* sees the traffic to come: a ceiling, not a competitor")
    return "\n".join(lines)


def latency_table(pooled: RequestTables) -> str:
    """A table for terminals: percentiles over the requests of all seeds, with a row per agent and task."""
    wide = _agent_width(pooled)
    head = f"{'task':<26}{'agent':<{wide}}{'':<5}{'p50':>11}{'p90':>11}{'p99':>11}{'in SLO':>9}{'lost':>8}"
    lines = ["Percentiles of requests, pooled over seeds; a lost request has no latency:", head, "-" * len(head)]
    for task in dict.fromkeys(task for tasks in pooled.values() for task in tasks):
        for agent, tasks in pooled.items():
            if task in tasks:
                lines += _latency_lines(task, f"{agent:<{wide}}", tasks[task])
    return "\n".join(lines)


def _agent_width(agents: Iterable[str]) -> int:
    """Width of the column of agents, whose names may be those of files or addresses."""
    return max(AGENT_WIDTH, *(len(agent) + 2 for agent in agents))


def _latency_lines(task: str, agent: str, figures: RequestFigures) -> list[str]:
    lines = []
    for name, digits in (("ttft", 0), ("tpot", 1), ("e2e", 0)):
        latency: LatencyFigures = getattr(figures, name)
        cells = "".join(f"{latency_text(value, digits):>11}" for value in latency.percentiles_ms.values())
        within = "–" if latency.within_slo is None else f"{latency.within_slo:.1%}"
        lost = f"{figures.num_lost / max(figures.num_requests, 1):.1%}" if name == "ttft" else ""
        lines.append(f"{task:<26}{agent}{name.upper():<5}{cells}{within:>9}{lost:>8}".rstrip())
        task, agent = "", " " * len(agent)
    return lines


def usage_of(results: Sequence[EpisodeResult]) -> dict[str, dict[str, int]]:
    """Agent -> sums of what its language model did and used, of agents that have one."""
    found: dict[str, dict[str, int]] = {}
    for result in results:
        for name, count in result.usage.items():
            totals = found.setdefault(result.agent, {})
            totals[name] = totals.get(name, 0) + count
    return found


def usage_lines(results: Sequence[EpisodeResult]) -> list[str]:
    """The sums of `usage_of` in words, a line per agent."""
    return [
        f"{agent}: {used['calls']} calls, {used['decisions']} decisions, {used['unparsable_answers']} unusable "
        f"answers, {used['prompt_tokens']} prompt and {used['completion_tokens']} completion tokens"
        + (f", tokens of {used['calls_without_usage']} calls unknown" if used["calls_without_usage"] else "")
        for agent, used in usage_of(results).items()
    ]


def as_json(results: Sequence[EpisodeResult], made: Provenance, extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """`tasks` at the top for one agent, below `agents` for several."""
    summaries, pooled = tabulate(results), pool_requests(results)
    agents = {
        agent: {
            "tasks": {
                task: {
                    **{name: summary.as_dict() for name, summary in figures.items()},
                    "requests": pooled[agent][task].as_dict(),
                }
                for task, figures in tasks.items()
            }
        }
        for agent, tasks in summaries.items()
    }
    if len(agents) == 1:
        name, only = next(iter(agents.items()))
        return {"agent": name, **only, **asdict(made), **(extra or {})}
    return {"agents": agents, **asdict(made), **(extra or {})}


def as_csv(results: Sequence[EpisodeResult]) -> str:
    """A row per episode, with the percentiles of its requests."""
    out = io.StringIO()
    latencies = list(pooled_figures([results[0].requests]).as_dict()) if results else []
    components = list(dict.fromkeys(name for result in results for name in result.breakdown))
    fields = ["agent", "task_id", "seed", *COLUMNS, *(f"grade_{name}" for name in components), *latencies]
    writer = csv.DictWriter(out, fields, lineterminator="\n")
    writer.writeheader()
    for result in results:
        row = {"agent": result.agent, "task_id": result.task_id, "seed": result.seed}
        row |= {name: getattr(result, field) for name, field in COLUMNS.items()}
        row |= {f"grade_{name}": value for name, value in result.breakdown.items()}
        writer.writerow(row | pooled_figures([result.requests]).as_dict())
    return out.getvalue()


def headline_table(summaries: Summaries, made: Provenance) -> str:
    """The headline table, with how to reproduce it."""
    tasks = list(made.task_versions)
    lines = [
        "| agent | " + " | ".join(f"`{task}`" for task in tasks) + " |",
        "|---|" + "---|" * len(tasks),
    ]
    for agent, rows in summaries.items():
        name = f"`{agent}` (ceiling: sees the future)" if agent in CEILINGS else f"`{agent}`"
        cells = [mean_text(rows[task]["score"]) if task in rows else "–" for task in tasks]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    closed = closed_gaps(summaries, tasks)
    if closed:
        shares = ", ".join(f"{task} {share:.0%}" for task, share in closed.items())
        lines += ["", f"Share of the gap from `tuned` to `clairvoyant` that `ppo` closes: {shares}."]
    versions = ", ".join(f"{task} v{version}" for task, version in made.task_versions.items())
    lines += [
        "",
        f"Mean score and 95 % bootstrap interval over seeds {made.seeds}; `{made.command}`, commit {made.commit}, "
        f"environment {made.environment_version}, {versions}.",
    ]
    return "\n".join(lines)


def mean_text(score: Summary) -> str:
    """A mean with its interval, as table cells show it."""
    return f"{score.mean:.3f} [{score.ci95[0]:.3f}, {score.ci95[1]:.3f}]"


def closed_gaps(summaries: Summaries, tasks: Sequence[str], agent: str = "ppo") -> dict[str, float]:
    """Per task with a gap worth the name, how far the agent gets from the tuned constant to the clairvoyant ceiling."""
    if not {agent, "tuned", "clairvoyant"} <= set(summaries):
        return {}
    found = {}
    for task in tasks:
        reached, low, high = (summaries[name][task]["score"].mean for name in (agent, "tuned", "clairvoyant"))
        share = gap_closed(reached, low, high)
        if share is not None and high - low >= MIN_GAP:
            found[task] = share
    return found
