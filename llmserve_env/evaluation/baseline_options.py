"""Options of the baseline commands; apart from what they start, so that `--help` loads nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

BASELINE_SEED = 42
MODES = ("deterministic", "openai")
RUNTIMES = ("in-process", "http")


def add_baseline_arguments(parser: Any) -> None:
    """Options of `llmserve baseline` and `python -m server.baseline_inference`."""
    parser.add_argument("--mode", choices=MODES, default=MODES[0], help="static and heuristic, or a language model")
    parser.add_argument("--runtime", choices=RUNTIMES, default=RUNTIMES[0])
    parser.add_argument("--base-url", default="http://localhost:7860", metavar="URL", help="server of runtime http")
    parser.add_argument("--model", metavar="NAME", help="of mode openai (default: MODEL_NAME, or gpt-4.1-mini)")
    parser.add_argument("--decide-every", type=int, default=1, metavar="N", help="windows per question to the model")
    parser.add_argument("--task", nargs="+", metavar="TASK", help="ids or numbers (default: all)")
    parser.add_argument("--seed", type=int, default=BASELINE_SEED, metavar="N")
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON to write (default: stdout)")
