"""User task files, small enough for tests."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import yaml

NUM_REQUESTS = 600
TRACE_S = 120.0


def own_task(**changes: Any) -> dict[str, Any]:
    """Fields of a task without its optional fields."""
    fields: dict[str, Any] = {
        "id": "my_task",
        "name": "My task",
        "steps": 20,
        "window_s": 2,
        "workload": {
            "horizon_s": 40,
            "classes": [{"name": "chat", "ttft_slo_ms": 500, "patience_s": 2}],
            "sources": [
                {
                    "tenant": "all",
                    "arrivals": {"kind": "poisson", "rate_rps": 6},
                    "kinds": [
                        {
                            "share": 1.0,
                            "class": "chat",
                            "prompt_tokens": {"kind": "uniform", "low": 200, "high": 1000},
                            "output_tokens": {"kind": "uniform", "low": 20, "high": 200},
                            "acceptance": {"base": 0.6},
                        }
                    ],
                }
            ],
        },
        "deployment": {"profile": "a100-40gb.llama-3-8b", "replicas": 1},
    }
    return {**fields, **changes}


def write_task(folder: Path, fields: dict[str, Any]) -> Path:
    """The fields as `<id>.yaml`."""
    path = folder / f"{fields['id']}.yaml"
    path.write_text(yaml.safe_dump(fields, sort_keys=False), encoding="utf-8")
    return path


def write_log(folder: Path, name: str = "requests.csv") -> Path:
    """A request log in the plain CSV format."""
    rng = np.random.default_rng(7)
    arrivals = np.sort(rng.uniform(0.0, TRACE_S, NUM_REQUESTS))
    path = folder / name
    with path.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out)
        rows.writerow(["arrival_s", "prompt_tokens", "output_tokens"])
        for at_s in arrivals:
            rows.writerow([f"{at_s:.3f}", int(rng.integers(50, 900)), int(rng.integers(5, 300))])
    return path


def traced_task(**changes: Any) -> dict[str, Any]:
    """Fields of a task whose workload names the log above."""
    workload = {
        "trace": {"file": "requests.csv", "format": "csv", "scale": 1.2},
        "classes": [{"name": "chat", "ttft_slo_ms": 500, "patience_s": 2}],
        "acceptance": {"base": 0.6},
    }
    return {**own_task(), "id": "traced", "workload": workload, **changes}
