"""Compare a live vLLM with the simulator: `python -m benchmarks.live_server [--engine .real]`.

With `--engine` (the folder into which `make real-install` put vLLM and its small model) it measures for a quarter of an
hour: it starts the server, calibrates a profile, and plays the same task, seeds and policy on both at three loads. The
result is stored in `live_server_found.json` and drawn. Without `--engine` it prints the latest result.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.bars import report_missed
from benchmarks.markdown import markdown_table
from llmserve_env.backends.real.launcher import LaunchOptions, VllmServer
from llmserve_env.cli.main import main as llmserve

FILE = Path(__file__).with_name("live_server_found.json")
PICTURE = FILE.parent.parent / "docs" / "images" / "live_server.png"
MEMORY_FOLDER = Path("/dev/shm")
"""The scheduler writes while it runs; a busy disk would slow it down."""
LOADS = ("0.3", "1", "2")
FIRST_SEED, SEEDS = 2, 3
ROUNDS = 3
"""Rounds of the probing load: enough to average over the drift of a shared machine."""
BARS = {"throughput_tps": 0.10, "ttft_ms": 0.20, "e2e_ms": 0.20}
LABELS = {"throughput_tps": "throughput", "ttft_ms": "mean TTFT", "e2e_ms": "mean end-to-end"}
COSTS = {"profile": "the calibration before it", "run": "the compared run"}


def measure(engine: Path) -> dict[str, Any]:
    """Measure both sides at every load and seed."""
    with tempfile.TemporaryDirectory(dir=MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None) as temporary:
        folder = Path(temporary)
        options = LaunchOptions(
            python=engine.absolute() / "venv" / "bin" / "python",
            model=engine.absolute() / "model",
            folder=folder / "control",
            # A front end that wakes up for every token would take processor time from the engine.
            extra=("--stream-interval", "4"),
        )
        profile, figures = folder / "live.json", folder / "figures.json"
        with VllmServer(options) as server:
            served = ["--model", options.served_name, "--control-dir", str(options.folder)]
            config = str(options.model / "config.json")
            probed = ["--config", config, "--rounds", str(ROUNDS), "-o", str(profile)]
            _run("calibrate", "--base-url", server.base_url, *served, *probed)
            both = ["--real", server.base_url, "--sim", str(profile), *served, "--load", *LOADS]
            seeds = ["--seed", str(FIRST_SEED), "--repeat", str(SEEDS)]
            _run("compare", *both, *seeds, "--plot", str(PICTURE), "--json", str(figures))
        return summary(json.loads(figures.read_text(encoding="utf-8")), server.started_in_s)


def _run(*arguments: str) -> None:
    if llmserve(arguments):
        raise SystemExit(f"llmserve {arguments[0]} failed")


def summary(figures: dict[str, Any], started_in_s: float) -> dict[str, Any]:
    """The part of a comparison that is stored."""
    runs = [run for run in figures["runs"] if run["is_refitted"]]
    return {
        "errors": figures["mean_errors"],
        "seeds": sorted({run["seed"] for run in runs}),
        "requests": sum(phase["requests"] for run in runs for phase in run["phases"]),
        "pace": [round(run["pace"], 3) for run in runs],
        "load_average": [round(run["load_average"], 1) for run in runs],
        "started_in_s": round(started_in_s),
        "date": datetime.now(UTC).date().isoformat(),
    }


def found() -> dict[str, Any]:
    """The latest stored result."""
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def worst(errors: dict[str, dict[str, float]], name: str) -> float:
    """Largest error of a figure over the loads."""
    return max(abs(by_name[name]) for by_name in errors.values())


def missed(content: dict[str, Any]) -> list[str]:
    """Bars that are not met."""
    return [
        f"costs fitted to {COSTS[costs]}, {float(rate):g} rps: {LABELS[name]} {by_name[name]:+.1%}"
        for costs, errors in content["errors"].items()
        for rate, by_name in errors.items()
        for name, bar in BARS.items()
        if abs(by_name[name]) > bar
    ]


def as_table(content: dict[str, Any]) -> str:
    """The table and the conditions of the measurement."""
    rows = [
        [COSTS[costs], f"{float(rate):g}", *(f"{by_name[name]:+.1%}" for name in LABELS)]
        for costs, errors in content["errors"].items()
        for rate, by_name in errors.items()
    ]
    pace, load = content["pace"], content["load_average"]
    return (
        f"{markdown_table(['costs fitted to', 'requests per second', *LABELS.values()], rows)}\n\n"
        f"{content['date']}: seeds {content['seeds'][0]} to {content['seeds'][-1]}, {content['requests']:,} requests; "
        f"iterations took {min(pace):.3f} to {max(pace):.3f} times what the calibration says, load average "
        f"{min(load)} to {max(load)}; the server had taken {content['started_in_s']} s to start."
    )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, metavar="DIR", help="folder with vLLM; measure with it")
    asked = parser.parse_args()
    if asked.engine is not None:
        FILE.write_text(json.dumps(measure(asked.engine), indent=1) + "\n", encoding="utf-8")
    content = found()
    print(as_table(content))
    status = report_missed(missed(content))
    return status if asked.engine is not None else 0


if __name__ == "__main__":
    raise SystemExit(main())
