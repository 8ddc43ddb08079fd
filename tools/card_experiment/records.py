"""What is kept of a played episode: a JSON line of facts and arrays of requests and windows, without any pickling."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.errors import ConfigError
from llmserve_env.request_outcomes import RequestOutcomes

WINDOW_TERMS = ("reward", "throughput", "slo", "latency", "violations", "cost", "memory", "ttft", "itl")
WINDOW_METRICS = ("queue_depth", "active_requests", "kv_cache_occupancy", "throughput_tps", "busy_gpu_s")


@dataclass(frozen=True, slots=True)
class Record:
    """One episode of one policy on one engine."""

    facts: dict[str, Any]
    """Engine, policy, seed, task, versions, KV blocks."""
    requests: RequestOutcomes
    windows: dict[str, Any]

    @property
    def key(self) -> tuple[str, int]:
        return str(self.facts["policy"]), int(self.facts["seed"])


def _stem(folder: Path, policy: str, seed: int) -> Path:
    """An episode's files without their suffix; a policy of your own may be named by a path."""
    return folder / f"{re.sub(r'[^A-Za-z0-9_-]', '_', policy)}_{seed}"


def is_kept(folder: Path, policy: str, seed: int) -> bool:
    """Whether a folder holds this episode; its facts are written last."""
    return _stem(folder, policy, seed).with_suffix(".json").is_file()


def save(folder: Path, facts: dict[str, Any], played: PlayedEpisode) -> Path:
    """Write an episode; its name says what it is."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = _stem(folder, facts["policy"], facts["seed"])
    n, trajectory = played.step_count, played.trajectory
    windows = {name: trajectory.terms[name][:n] for name in WINDOW_TERMS}
    windows |= {name: trajectory.metrics[name][:n] for name in WINDOW_METRICS}
    columns = {f"request_{f.name}": getattr(played.requests, f.name) for f in fields(RequestOutcomes)}
    arrays = {**columns, **{f"window_{name}": values for name, values in windows.items()}}
    np.savez_compressed(stem.with_suffix(".npz"), knobs=trajectory.knobs[:n], **arrays)
    stem.with_suffix(".json").write_text(json.dumps({**facts, "windows": n}, indent=1) + "\n", encoding="utf-8")
    return stem.with_suffix(".npz")


def load(folder: Path) -> list[Record]:
    """Every episode of a folder, by policy and seed."""
    found = []
    for path in sorted(folder.glob("*.npz")):
        facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        with np.load(path, allow_pickle=False) as arrays:
            columns = {f.name: arrays[f"request_{f.name}"] for f in fields(RequestOutcomes)}
            windows = {
                name.removeprefix("window_"): arrays[name] for name in arrays.files if name.startswith("window_")
            }
            windows["knobs"] = arrays["knobs"]
        found.append(Record(facts, RequestOutcomes(**columns), windows))
    if not found:
        raise ConfigError(f"{folder} holds no episode of the experiment; make some with `tools.card_experiment play`")
    return found
