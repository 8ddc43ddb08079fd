"""Record the episode with which the page opens: `python -m tools.record_opening [--check]`.

The page plays this recording before the simulator is compiled, so it holds everything that the page would otherwise
ask the server for: the task, the two agents, and what they did on one seed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmserve_env.agents.agent import view_of
from llmserve_env.agents.registry import make_agent
from llmserve_env.env.episode import Episode
from llmserve_env.env.observation import observe
from llmserve_env.models import ServeAction
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.server.routes.information import task_info
from llmserve_env.server.routes.pages import STATIC
from llmserve_env.server.scoring import available_agents, grade_of
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import Task

TASK = "adversarial_multitenant"
SEED = 42
AGENTS = ("ppo", "vllm_defaults")
OUTPUT = STATIC / "opening.json"
SIGNIFICANT_DIGITS = 5
METADATA = ("reward_terms", "phase", "counts", "knobs")
"""What the page reads of an observation's metadata."""


def _rounded(value: Any) -> Any:
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if isinstance(value, float) else value


def _flat(fields: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested fields by dotted names."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _rounded(value)


def columns(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Steps by column, which is far smaller; a column that never changes is its one value."""
    rows = [dict(_flat(step)) for step in steps]
    by_name = {name: [row[name] for row in rows] for name in rows[0]}
    return {
        name: values[0] if all(value == values[0] for value in values) else values for name, values in by_name.items()
    }


def recorded(agent_name: str, task: Task, seed: int) -> dict[str, Any]:
    """One agent's episode."""
    episode, agent, steps = Episode(task), make_agent(agent_name), []
    episode.reset(seed)
    agent.reset(task, [stream(seed, POLICY_STREAM)])
    while not episode.is_done:
        episode.step(agent.act(view_of(episode.batch, episode.step_count))[0])
        seen = observe(episode)
        reward, metadata = seen.pop("reward"), seen.pop("metadata")
        figures = {name: value for name, value in seen.items() if isinstance(value, (int, float))}
        kept = {name: metadata[name] for name in METADATA}
        steps.append({"observation": {**figures, "metadata": kept}, "reward": reward})
    grade = grade_of(episode)
    breakdown = {name: _rounded(value) for name, value in grade.breakdown.items()}
    shown = {"score": _rounded(grade.score), "feedback": grade.feedback, "breakdown": breakdown}
    return {"agent": agent_name, "columns": columns(steps), "grade": shown}


def opening() -> dict[str, Any]:
    """The whole recording."""
    task = load_task(TASK)
    return {
        "made_by": "python -m tools.record_opening",
        "task": task_info(task).model_dump(),
        "seed": SEED,
        "action_schema": {"properties": ServeAction.model_json_schema()["properties"]},
        "agents": [one.model_dump() for one in available_agents(TASK) if one.name in AGENTS],
        "lanes": [recorded(name, task, SEED) for name in AGENTS],
    }


def text() -> str:
    """The recording as the file holds it."""
    return json.dumps(opening(), separators=(",", ":"), ensure_ascii=False) + "\n"


def main() -> int:
    """Write the recording, or with --check say whether it is out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when the recording is out of date")
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT, help="file to write (default: the page's)")
    arguments = parser.parse_args()
    fresh = text()
    if arguments.output.is_file() and arguments.output.read_text(encoding="utf-8") == fresh:
        return 0
    print(f"{'out of date' if arguments.check else 'written'}: {arguments.output}", file=sys.stderr)
    if arguments.check:
        return 1
    arguments.output.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
