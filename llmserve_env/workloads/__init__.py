"""Traffic as data: a validated description and a seed determine a table of requests.

Read `spec.py` for what a description may say, `rates.py` for how arrivals follow a rate curve, `sampling.py` for how a
table is drawn, `schedule.py` for what is known about the traffic of a seed in advance.
"""

from __future__ import annotations

from llmserve_env.workloads.problems import config_error
from llmserve_env.workloads.sampling import sample
from llmserve_env.workloads.schedule import TrafficSchedule, schedule
from llmserve_env.workloads.spec import WorkloadSpec, parse_workload
from llmserve_env.workloads.summary import WorkloadSummary, describe

__all__ = [
    "TrafficSchedule",
    "WorkloadSpec",
    "WorkloadSummary",
    "config_error",
    "describe",
    "parse_workload",
    "sample",
    "schedule",
]
