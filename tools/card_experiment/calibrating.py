"""Episodes that are recorded iteration by iteration, and not reported: they tell how fast the host was on the day.

Iterations with prompts are bound by the CPU that launches them, and no two machines have the same. One episode is
recorded before the reported ones and one after them, on seeds of their own, under limits that use every launch mode.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from llmserve_env.agents.agent import AgentView
from llmserve_env.arrays import Array
from llmserve_env.backends.real.in_process import InProcessEngine
from llmserve_env.engine.knobs import named
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.tasks.task import Task
from tools.card_experiment.engines import EnginePlan
from tools.card_experiment.playing import engine_facts, live_episode, play_out, provider_of

FOLDER = "calibration"
SEEDS = {"before": 9_001, "after": 9_002}
"""Not among the reported seeds, nor among those that policies are tuned or trained on."""
TOKEN_BUDGETS = (8_192, 512, 2_048)
"""Iterations above the largest captured graph, within it, and between."""
HOLD_WINDOWS = 8
COLUMNS = {
    "t_sched": "scheduled",
    "t_output": "taken",
    "t_output_end": "end",
    "running": "running",
    "waiting": "waiting",
    "decode_reqs": "decoding",
    "chunks": "chunks",
    "prefill_tokens": "prefill_tokens",
    "prefill_work": "pairs",
    "decode_ctx": "context",
    "new_reqs": "admitted",
}
"""Column -> field that the steered scheduler writes; those of `tools.recorder` have the same names."""
TIMES = ("t_sched", "t_output", "t_output_end")


class Sweep:
    """The engine's defaults with one token budget after the other."""

    name = "sweep"

    def __init__(self, defaults: dict[str, Any]) -> None:
        self._defaults, self._window = defaults, 0

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        self._window = 0

    def act(self, view: AgentView) -> Array:
        budget = TOKEN_BUDGETS[self._window // HOLD_WINDOWS % len(TOKEN_BUDGETS)]
        self._window += 1
        wanted = {**self._defaults, "token_budget": min(budget, self._defaults["token_budget"])}
        return np.array([view.task.knobs_from_partial(row, wanted) for row in view.knobs])


def is_recorded(out: Path, name: str) -> bool:
    """Whether a folder holds this episode; its facts are written last."""
    return (out / FOLDER / f"{name}.json").is_file()


def record(engine: InProcessEngine, task: Task, plan: EnginePlan, out: Path, name: str) -> int:
    """Play and keep one recorded episode; the number of its iterations."""
    with live_episode(engine, task, SEEDS[name], record_iterations=True) as (episode, backend):
        provider = provider_of(backend)
        played = play_out(episode, task, Sweep(dict(plan.defaults)), SEEDS[name])
        lines = provider.iterations_path.read_text(encoding="utf-8").splitlines()
        facts = {**engine_facts(provider.status()), "seed": SEEDS[name], "window_s": task.window_s}
    rows = [json.loads(line) for line in lines]
    arrays = {column: np.array([row[field] for row in rows], dtype=float) for column, field in COLUMNS.items()}
    for column in TIMES:
        arrays[column] -= backend.origin_s
    arrays |= requests_of(played)
    folder = out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / f"{name}.npz", allow_pickle=False, **arrays)
    (folder / f"{name}.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return len(rows)


def requests_of(played: PlayedEpisode) -> dict[str, Array]:
    """What the fit needs of the clients, and the token budget of every window."""
    requests = played.requests
    return {
        "sent_s": requests.arrival_s,
        "prompt_tokens": requests.prompt_tokens,
        "output_tokens": requests.output_tokens,
        "first_token_s": requests.arrival_s + requests.ttft_ms / 1e3,
        "finish_s": requests.arrival_s + requests.e2e_ms / 1e3,
        "token_budgets": named(played.trajectory.knobs[: played.step_count])["token_budget"],
    }
