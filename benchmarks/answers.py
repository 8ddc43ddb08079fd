"""Do the commands agree, and does their answer hold? `python -m benchmarks.answers [--tasks N] [--commands FILE]`.

Random small tasks are drawn: traffic, lengths, classes, promises and GPUs. For each of them

- `task check`, `tune`, `capacity` and `report` are run as commands, and what they say about the recommended fleet, its
  configuration, its cost and its promises must be the same text;
- the recommendation is simulated on seeds that neither search nor verification have seen;
- every configuration of every cheaper fleet is simulated on all search seeds: none may be accepted.

`--commands` writes the printed `vllm serve` commands, one JSON list per line, for a check by vLLM itself.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from llmserve_env.cli.main import main as llmserve
from llmserve_env.evaluation.runner import Runner, Threads
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.planning.answer.answer import Answer
from llmserve_env.planning.answer.configurations import active_tiers, configurations
from llmserve_env.planning.answer.objectives import objectives_of, verdicts
from llmserve_env.planning.answer.playing import followed, play_followed, tally_all
from llmserve_env.planning.answer.protocol import Protocol
from llmserve_env.planning.answer.store import answer_for
from llmserve_env.planning.report.flags import serving
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import on_fleet

UNSEEN_SEEDS = SEED_RANGES["answers"][-16:]
"""Far behind the seeds that verifications take."""
MAX_REPLICAS = 12
GPUS = ("a100-40gb.llama-3-8b", "a100-80gb.llama-3-8b", "h100-80gb.llama-3-8b", "h200-141gb.llama-3-8b")
PROTOCOL = Protocol(max_replicas=MAX_REPLICAS)
OPTIONS = ("--max-replicas", str(MAX_REPLICAS))


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found about one task."""

    name: str
    answer: Answer
    agree: bool
    """Whether the four commands say the same."""
    is_kept_unseen: bool | None
    """Whether the recommendation keeps its promises on unseen seeds; None without one."""
    cheaper: tuple[str, ...]
    """Cheaper configurations that would have been accepted."""
    command: list[str] | None
    """The printed `vllm serve` command."""


def random_task(number: int) -> dict[str, Any]:
    """Fields of a small task; the number decides everything."""
    rng = np.random.default_rng(number)
    classes = [_service("chat", rng)]
    kinds = [_kind("chat", rng, 100, 1_500)]
    if rng.random() < 0.4:
        classes.append(_service("batch", rng))
        kinds.append(_kind("batch", rng, 1_000, 5_000))
    for kind in kinds:
        kind["share"] = 1.0 / len(kinds)
    rate = float(np.round(np.exp(rng.uniform(np.log(6.0), np.log(60.0))), 2))
    arrivals = [
        {"kind": "poisson", "rate_rps": rate},
        {"kind": "gamma", "rate_rps": rate, "cv": float(np.round(rng.uniform(1.0, 2.5), 2))},
        {"kind": "on_off", "on_rps": 2.0 * rate, "on_s": 6, "off_s": 8},
    ][int(rng.integers(3))]
    return {
        "id": f"random_{number}",
        "name": f"Random task {number}",
        "steps": 20,
        "window_s": 2,
        "workload": {
            "horizon_s": 40,
            "classes": classes,
            "sources": [{"tenant": "all", "arrivals": arrivals, "kinds": kinds}],
        },
        "deployment": {"profile": str(rng.choice(GPUS)), "replicas": int(rng.integers(1, 4))},
    }


def _service(name: str, rng: np.random.Generator) -> dict[str, Any]:
    """A class with one to three promises."""
    scale = 1.0 if name == "chat" else 4.0
    service: dict[str, Any] = {"name": name, "ttft_slo_ms": float(rng.choice([300, 500, 1_000])) * scale}
    service["patience_s"] = float(rng.choice([2, 5, 10])) * scale
    if rng.random() < 0.4:
        service["tpot_slo_ms"] = float(rng.choice([40, 60, 100]))
    if rng.random() < 0.3:
        service["slo_share"] = float(rng.choice([0.9, 0.95, 0.99]))
    if rng.random() < 0.4:
        service["slo_percentiles"] = dict(
            [[("tpot_mean_ms", 40.0)], [("e2e_p90_ms", 20_000.0)], [("ttft_p99_ms", 3_000.0 * scale)]][
                int(rng.integers(3))
            ]
        )
    return service


def _kind(name: str, rng: np.random.Generator, low: int, high: int) -> dict[str, Any]:
    return {
        "class": name,
        "prompt_tokens": {"kind": "uniform", "low": low, "high": int(rng.integers(low + 100, high))},
        "output_tokens": {"kind": "uniform", "low": 10, "high": int(rng.integers(60, 400))},
        "acceptance": {"base": float(np.round(rng.uniform(0.4, 0.8), 2))},
    }


def said_by(*words: str) -> str:
    """What a command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        llmserve(list(words))
    return out.getvalue()


def commands_agree(path: Path, answer: Answer) -> bool:
    """Whether every command gives this answer, to the digit."""
    page = path.with_suffix(".html")
    texts = [said_by(*words, str(path), *OPTIONS) for words in (("task", "check"), ("tune",), ("capacity",))]
    said_by("report", str(path), "-o", str(page), *OPTIONS)
    texts.append(page.read_text(encoding="utf-8"))
    shown = answer.recommended or answer.own
    facts = [promise.value_text for promise in shown.promises] + [f"{shown.usd_per_hour:.2f}"]
    facts += [promise.value_text for promise in answer.own.promises]
    lines = {tuple(line for line in text.splitlines() if _is_answer(line)) for text in texts[:3]}
    return len(lines) == 1 and all(fact in text for fact in facts for text in texts)


def _is_answer(line: str) -> bool:
    return line.lstrip().startswith(
        ("recommended", "kept on fresh", "BROKEN on fresh", "own fleet", "seeds", "promised")
    )


def cheaper_answers(task: Task, answer: Answer, runner: Runner) -> Iterator[str]:
    """Accepted configurations of fleets that cost less, found by trying all of them."""
    objectives, seeds = objectives_of(task, PROTOCOL.target), PROTOCOL.search_seeds(answer.rounds)
    limit = float("inf") if answer.recommended is None else answer.recommended.usd_per_hour
    for replicas in range(1, MAX_REPLICAS + 1):
        fleet = on_fleet(task, replicas)
        if replicas * fleet.fleet.costs.price_usd_per_hour >= limit:
            return
        for tier in active_tiers(fleet):
            rows = configurations(fleet, tier)
            for row, counted in zip(rows, tally_all(fleet, rows, seeds, objectives, runner), strict=True):
                if all(verdict.is_sure for verdict in verdicts(objectives, counted, PROTOCOL.confidence)):
                    yield f"{replicas} replicas: {row.tolist()}"


def examine(number: int, folder: Path, runner: Runner) -> Examined:
    """One random task from all sides."""
    fields = random_task(number)
    path = folder / f"{fields['id']}.yaml"
    path.write_text(yaml.safe_dump(fields, sort_keys=False), encoding="utf-8")
    task = load_task(path)
    answer = answer_for(task, PROTOCOL, runner)
    shown = answer.recommended or answer.own
    fleet = on_fleet(task, shown.replicas, shown.profile)
    knobs = fleet.knobs_from_mapping(shown.knobs)
    is_kept = None
    if answer.recommended is not None:
        episodes = play_followed(fleet, knobs, UNSEEN_SEEDS, runner)
        is_kept = followed(fleet, knobs, episodes, objectives_of(task, PROTOCOL.target), PROTOCOL.confidence).is_kept
    start = serving(fleet, knobs)
    return Examined(
        name=task.id,
        answer=answer,
        agree=commands_agree(path, answer),
        is_kept_unseen=is_kept,
        cheaper=tuple(cheaper_answers(task, answer, runner)),
        command=None if start is None else ["serve", *start.words],
    )


def examine_all(count: int, runner: Runner) -> list[Examined]:
    """So many random tasks."""
    with tempfile.TemporaryDirectory() as folder:
        return [examine(number, Path(folder), runner) for number in range(count)]


def main() -> None:
    """Print what was found, task by task and in all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=30, metavar="N")
    parser.add_argument("--commands", type=Path, metavar="FILE", help="write the serve commands, a JSON list each")
    asked = parser.parse_args()
    found = examine_all(asked.tasks, Threads(2))
    for one in found:
        best = one.answer.recommended
        fleet = "no fleet" if best is None else f"{best.replicas} × {best.gpu} {best.tier_name}"
        kept = {None: "–", True: "kept", False: "BROKEN"}[one.is_kept_unseen]
        agree = "agree" if one.agree else "DISAGREE"
        print(f"{one.name:<11}{fleet:<26}{kept:<8}{agree:<10}cheaper ones accepted: {len(one.cheaper)}")
    answered = [one for one in found if one.is_kept_unseen is not None]
    print(
        f"{len(found)} tasks, {len(answered)} with a recommendation: the commands agree on "
        f"{sum(one.agree for one in found)}; {sum(bool(one.is_kept_unseen) for one in answered)} recommendations keep "
        f"their promises on unseen seeds; {sum(bool(one.cheaper) for one in found)} have a cheaper accepted one."
    )
    if asked.commands:
        lines = [json.dumps(one.command) for one in found if one.command is not None]
        asked.commands.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
