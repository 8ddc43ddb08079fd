"""Write the sample request log of examples/own_workload: `python -m tools.make_sample_log [FILE]`.

The log is synthetic: half an hour of two tenants, one steady and one bursty, with the columns of the plain CSV format.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

from llmserve_env.workloads import parse_workload, sample

TARGET = Path("examples/own_workload/sample_log.csv")
SEED = 2026
WORKLOAD = {
    "horizon_s": 1800,
    "classes": [{"name": "any", "ttft_slo_ms": None}],
    "sources": [
        {
            "tenant": "assistant",
            "arrivals": {"kind": "rate_series", "step_s": 300, "rates_rps": [0.8, 1.1, 1.6, 1.9, 1.3, 0.9], "cv": 1.1},
            "kinds": [
                {
                    "share": 1.0,
                    "class": "any",
                    "prompt_tokens": {"kind": "lognormal", "mu": 6.4, "sigma": 0.8, "low": 20, "high": 8000},
                    "output_tokens": {"kind": "lognormal", "mu": 5.0, "sigma": 0.7, "low": 4, "high": 1000},
                    "acceptance": {"base": 0.0},
                }
            ],
        },
        {
            "tenant": "batch_jobs",
            "arrivals": {"kind": "on_off", "on_rps": 4.0, "on_s": 20, "off_s": 100},
            "kinds": [
                {
                    "share": 1.0,
                    "class": "any",
                    "prompt_tokens": {"kind": "uniform", "low": 1500, "high": 4000},
                    "output_tokens": {"kind": "uniform", "low": 10, "high": 80},
                    "acceptance": {"base": 0.0},
                }
            ],
        },
    ],
}


def write(target: Path) -> int:
    """Write the log and return its number of requests."""
    spec = parse_workload(WORKLOAD)
    table = sample(spec, SEED)
    with target.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(["arrival_s", "prompt_tokens", "output_tokens", "tenant"])
        at_s = np.round(table.arrival_at_ps / 1e12, 3)
        columns = (at_s, table.prompt_tokens, table.output_tokens, table.tenant)
        for at, prompt, output, tenant in zip(*columns, strict=True):
            rows.writerow([f"{at:.3f}", int(prompt), int(output), spec.tenants[tenant]])
    return len(table)


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    print(f"{path}: {write(path)} requests")
