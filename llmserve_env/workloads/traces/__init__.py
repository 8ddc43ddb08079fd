"""Recorded traffic: import a log, describe it, replay it, or fit a generator to it.

Read `formats.py` for the supported log formats, `importing.py` for how a log becomes a trace, `trace.py` for replay,
`statistics.py` for the figures of a trace, and `fitting.py` for how a trace becomes a workload.
"""

from __future__ import annotations

from llmserve_env.workloads.traces.fidelity import Fidelity, measure_fidelity
from llmserve_env.workloads.traces.fitting import FitOptions, FittedWorkload, fit_trace
from llmserve_env.workloads.traces.formats import FORMATS, LogFormat, resolve_format
from llmserve_env.workloads.traces.importing import ImportResult, import_trace
from llmserve_env.workloads.traces.metadata import TraceMetadata
from llmserve_env.workloads.traces.trace import Trace, load_trace

__all__ = [
    "FORMATS",
    "Fidelity",
    "FitOptions",
    "FittedWorkload",
    "ImportResult",
    "LogFormat",
    "Trace",
    "TraceMetadata",
    "fit_trace",
    "import_trace",
    "load_trace",
    "measure_fidelity",
    "resolve_format",
]
