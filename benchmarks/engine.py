"""How fast the simulator runs: `python -m benchmarks.engine [--json]`.

Three loads at three batch caps on one replica and one thread, first as vLLM runs by default (async scheduling, prefix
caching, a host beside the GPU) and then with neither. CPU seconds of serving a whole trace to its last token, in one
compiled call and, beside it, in 1-second windows driven from Python; the median of five repeats.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from llmserve_env.engine.costs import GpuCosts
from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.engine import Engine
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.engine.layout import FINISHED
from llmserve_env.profiles import list_profiles, load_profile
from llmserve_env.profiles.host import load_host
from llmserve_env.request_table import RequestTable
from llmserve_env.rng import ARRIVALS_STREAM, LENGTHS_STREAM, stream
from llmserve_env.units import PS_PER_S

PREFERRED_PROFILE, OTHER_PROFILE = "h200-141gb.llama-3-8b", "a100-40gb.llama-3-8b"
HOST = "xeon-h200-vllm-0.26"
BATCH_CAPS = (32, 128, 512)
METHOD = (
    "CPU seconds (process_time) of one thread, median of {repeats} repeats, one replica, {requests} requests served to "
    "the last token, loading the table not counted; requests_per_s counts finished requests. Main figures: the whole "
    "trace in one compiled call; windowed: one call from Python per simulated second. Profile {profile}. "
    "Mode vllm_default: async scheduling, prefix caching and host {host}; mode sync: none of them."
)
WARM_START = "from benchmarks.engine import first_call; first_call()"
_ALL_ARRIVED_AND_SERVED_PS = 1_000_000 * PS_PER_S


@dataclass(frozen=True, slots=True)
class Row:
    """One load at one batch cap in one mode."""

    mode: str
    load: str
    batch_cap: int
    requests_per_s: float
    iterations_per_s: float
    sim_s_per_s: float
    windowed_requests_per_s: float
    windowed_sim_s_per_s: float
    us_per_window: float


def light(num_requests: int, seed: int) -> RequestTable:
    """10 requests/s, prompts of 64 to 128 tokens, outputs exponential with mean 200."""
    lengths = stream(seed, LENGTHS_STREAM)
    arrivals = stream(seed, ARRIVALS_STREAM).exponential(1 / 10, num_requests).cumsum()
    return _table(arrivals, lengths.integers(64, 129, num_requests), _outputs(lengths, num_requests))


def bursts(num_requests: int, seed: int) -> RequestTable:
    """25 requests/s, 80 in the last 10 s of every 30; log-normal prompts in 32..8192, outputs exponential, mean 200."""
    lengths, unit = stream(seed, LENGTHS_STREAM), stream(seed, ARRIVALS_STREAM).exponential(1.0, num_requests).cumsum()
    # A Poisson process of varying rate is one of rate 1 on the clock of expected arrivals.
    per_period = 20 * 25 + 10 * 80
    periods, rest = np.divmod(unit, per_period)
    arrivals = 30 * periods + np.where(rest < 500, rest / 25, 20 + (rest - 500) / 80)
    prompts = np.clip(lengths.lognormal(5.2, 1.3, num_requests), 32, 8192).astype(np.int64)
    return _table(arrivals, prompts, _outputs(lengths, num_requests))


def mixed(num_requests: int, seed: int) -> RequestTable:
    """30 requests/s, prompts of 4k to 8k tokens for 30 % of them and of 32 to 128 for the others; outputs 64 or 128."""
    lengths = stream(seed, LENGTHS_STREAM)
    arrivals = stream(seed, ARRIVALS_STREAM).exponential(1 / 30, num_requests).cumsum()
    is_long = lengths.random(num_requests) < 0.3
    prompts = np.where(is_long, lengths.integers(4096, 8193, num_requests), lengths.integers(32, 129, num_requests))
    return _table(arrivals, prompts, lengths.choice([64, 128], num_requests))


LOADS: dict[str, Callable[[int, int], RequestTable]] = {"light": light, "bursts": bursts, "mixed": mixed}


def _outputs(lengths: np.random.Generator, num_requests: int) -> Any:
    return np.clip(np.ceil(lengths.exponential(200.0, num_requests)), 1, 2048).astype(np.int64)


def _table(arrivals_s: Any, prompt_tokens: Any, output_tokens: Any) -> RequestTable:
    return RequestTable.of(np.rint(arrivals_s * PS_PER_S).astype(np.int64), prompt_tokens, output_tokens)


def profile_name() -> str:
    """The measured H200 where it is shipped."""
    return PREFERRED_PROFILE if PREFERRED_PROFILE in list_profiles() else OTHER_PROFILE


def deployment_on(costs: GpuCosts) -> Deployment:
    """One replica with the limits that vLLM starts with on a large card."""
    token_budget, max_running = 8192, 512
    reserve = token_budget * costs.activation_bytes_per_token + max_running * costs.logits_bytes_per_sequence
    return Deployment(
        costs=costs,
        memory_limit_bytes=int(0.9 * costs.memory_bytes),
        activation_reserve_bytes=reserve,
        token_budget=token_budget,
        max_running=max_running,
    )


def modes(costs: GpuCosts) -> dict[str, Deployment]:
    """The same deployment as vLLM runs it by default, and without what vLLM adds to plain scheduling."""
    sync = deployment_on(costs)
    default = replace(sync, async_scheduling=True, prefix_caching=True, host=load_host(HOST).costs())
    return {"vllm_default": default, "sync": sync}


def measure(mode: str, name: str, batch_cap: int, deployment: Deployment, num_requests: int, repeats: int) -> Row:
    """Serve one load repeatedly, whole and in windows."""
    table = LOADS[name](num_requests, 0)
    engine = Engine(deployment, table, seed=0)
    knobs = ServingKnobs(batch_cap=batch_cap)
    whole = [_cpu_s(lambda: engine.serve(knobs, _ALL_ARRIVED_AND_SERVED_PS), engine, table) for _ in range(repeats)]
    records = engine.request_records()
    finished = int((records["status"] == FINISHED).sum())
    iterations = int(engine.state.window[0]["iterations"])
    num_windows = -(-int(records["finished_at_ps"].max()) // PS_PER_S)
    windowed = [_cpu_s(lambda: _serve_windows(engine, knobs, num_windows), engine, table) for _ in range(repeats)]
    whole_s, windowed_s = statistics.median(whole), statistics.median(windowed)
    return Row(
        mode=mode,
        load=name,
        batch_cap=batch_cap,
        requests_per_s=finished / whole_s,
        iterations_per_s=iterations / whole_s,
        sim_s_per_s=num_windows / whole_s,
        windowed_requests_per_s=finished / windowed_s,
        windowed_sim_s_per_s=num_windows / windowed_s,
        us_per_window=1e6 * windowed_s / num_windows,
    )


def _serve_windows(engine: Engine, knobs: ServingKnobs, num_windows: int) -> None:
    for window in range(num_windows):
        engine.serve(knobs, (window + 1) * PS_PER_S)


def _cpu_s(work: Callable[[], None], engine: Engine, table: RequestTable) -> float:
    engine.load(0, table, seed=0)
    started = time.process_time()
    work()
    return time.process_time() - started


def first_call() -> None:
    """What a newcomer waits for: set up an engine and serve one second."""
    engine = Engine(deployment_on(load_profile(profile_name()).costs()), light(100, seed=0), seed=0)
    engine.serve(ServingKnobs(), PS_PER_S)


def warm_start_s() -> float:
    """Wall seconds of a new process that imports the library and serves its first second, the cache being warm."""
    first_call()
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", WARM_START], check=True)
    return time.perf_counter() - started


def measure_snapshot(deployment: Deployment, calls: int = 200) -> dict[str, float]:
    """Snapshot and restore in the middle of a 200-second episode of the light load."""
    table = light(2_000, seed=0)
    engine = Engine(deployment, table, seed=0)
    engine.serve(ServingKnobs(batch_cap=128), 100 * PS_PER_S)
    snapshot = engine.snapshot()

    def us_per_call(call: Callable[[], object]) -> float:
        started = time.process_time()
        for _ in range(calls):
            call()
        return 1e6 * (time.process_time() - started) / calls

    return {
        "snapshot_us": us_per_call(engine.snapshot),
        "restore_us": us_per_call(lambda: engine.restore(snapshot)),
        "snapshot_bytes": snapshot.num_bytes,
    }


def print_table(report: dict[str, Any]) -> None:
    """The report for people."""
    print(report["method"])
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}\n")
    print(f"{'':34}{'one call':^42}{'1-s windows from Python':^39}")
    heads = ("requests/s", "iterations/s", "sim s/s", "requests/s", "sim s/s", "us/window")
    print(f"{'mode':14}{'load':8}{'batch cap':>12}" + "".join(f"{head:>14}" for head in heads))
    for row in report["rows"]:
        figures = list(row.values())[3:]
        print(
            f"{row['mode']:14}{row['load']:8}{row['batch_cap']:>12}"
            + "".join(f"{figure:>14,.0f}" for figure in figures[:-1])
            + f"{figures[-1]:>14.1f}"
        )
    print(f"\nwarm start {report['warm_start_s']:.2f} s")
    print(
        "snapshot {snapshot_us:.1f} us, restore {restore_us:.1f} us, {snapshot_bytes:,} bytes".format(
            **report["snapshot"]
        )
    )


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print figures as JSON instead of a table")
    parser.add_argument("--requests", type=int, default=20_000, help="requests per load (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="repeats of each measurement (default: %(default)s)")
    options = parser.parse_args(arguments)
    profile = profile_name()
    deployments = modes(load_profile(profile).costs())
    first_call()
    rows = [
        measure(mode, name, cap, deployment, options.requests, options.repeats)
        for mode, deployment in deployments.items()
        for name in LOADS
        for cap in BATCH_CAPS
    ]
    report = {
        "method": METHOD.format(repeats=options.repeats, requests=options.requests, profile=profile, host=HOST),
        "rows": [asdict(row) for row in rows],
        "warm_start_s": warm_start_s(),
        "snapshot": measure_snapshot(deployments["sync"]),
    }
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        print_table(report)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
