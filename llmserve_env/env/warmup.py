"""Compiling the simulator ahead of its first step: `python -m llmserve_env.env.warmup`.

Two child processes fill the cache on disk side by side: one compiles the engine's loop, which is most of the work, the
other everything else. The calling process only waits for them, so its other threads stay responsive.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fcntl import LOCK_EX, flock
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from subprocess import PIPE, Popen
from tempfile import TemporaryFile

import numpy as np
from tqdm import tqdm

from llmserve_env.engine.costs import MAX_SPECULATION_DEPTH, Curve, DraftCosts, GpuCosts, TierCosts
from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.engine import EngineBatch
from llmserve_env.engine.kernels.compilation import (
    JIT_IS_OFF,
    KERNELS,
    cache_folder,
    compiled_kernels_reported,
    is_compiled,
)
from llmserve_env.engine.kernels.deployment_loop import advance
from llmserve_env.engine.kernels.measure import measure
from llmserve_env.engine.state import records
from llmserve_env.env.features import NUM_WINDOW_FEATURES, encode_features
from llmserve_env.env.kernels import (
    CONTROL_DTYPE,
    NUM_KNOBS,
    SCORING_DTYPE,
    TERMS_DTYPE,
    hold_knobs,
    look_up_levels,
    score_windows,
)
from llmserve_env.env.spaces import ActionCodec
from llmserve_env.request_table import RequestTable
from llmserve_env.tasks.catalog import BENCHMARK, load_task

ENTRY_POINTS = (advance, measure, hold_knobs, score_windows, look_up_levels, encode_features)
PARTS = ("engine", "rest")
"""What the children compile; the engine's loop takes three quarters of the work."""
COMPILED = "compiled "
"""A child writes a line with this prefix for every kernel it has compiled."""
OnProgress = Callable[[float], None]
"""Called with the share of the kernels that are compiled."""


def is_warm() -> bool:
    """Whether every entry point is in the cache on disk for this version and machine."""
    return is_compiled(*ENTRY_POINTS)


def warm_up(show_progress: bool = True, on_progress: OnProgress | None = None) -> None:
    """Fill the cache on disk, so that the first step of an environment is quick; returns at once if it is full.

    Where the cache cannot be written, nothing happens here: the first step compiles in its process.
    """
    if JIT_IS_OFF or is_warm() or not _can_write(cache_folder()):
        return
    with _one_at_a_time(cache_folder()):
        if not is_warm():
            _compile_in_children(show_progress, on_progress)


@cache
def warm_up_once() -> None:
    """Call `warm_up` once per process."""
    warm_up()


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold a lock, so that of several processes that start together, one compiles and the others wait."""
    with (folder / "lock").open("w") as lock:
        flock(lock, LOCK_EX)
        yield


def child_command(part: str) -> Sequence[str]:
    """The command that compiles one part into the cache."""
    return (sys.executable, "-m", "llmserve_env.env.warmup", "--part", part)


def _compile_in_children(show_progress: bool, on_progress: OnProgress | None) -> None:
    """Run the children and draw their progress; RuntimeError with a child's error if one fails."""
    package_root = str(Path(__file__).parents[2])
    path = os.pathsep.join([package_root, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    with ExitStack() as stack:
        errors = [stack.enter_context(TemporaryFile("w+")) for _ in PARTS]
        children = [
            stack.enter_context(Popen(child_command(part), env=environment, stdout=PIPE, stderr=error, text=True))
            for part, error in zip(PARTS, errors, strict=True)
        ]
        try:
            _follow(children, show_progress, on_progress)
        finally:
            for child in children:
                child.kill()
        for part, child, error in zip(PARTS, children, errors, strict=True):
            if child.wait():
                error.seek(0)
                raise RuntimeError(f"compiling the simulator's kernels ({part}) failed:\n{error.read()}")


def _follow(children: Sequence[Popen[str]], show_progress: bool, on_progress: OnProgress | None) -> None:
    """Count the kernels that the children report until all have ended."""
    lines: SimpleQueue[str | None] = SimpleQueue()

    def read(child: Popen[str]) -> None:
        for line in child.stdout or ():
            lines.put(line)
        child.wait()
        lines.put(None)

    if show_progress:
        sys.stderr.write("compiling the simulator's kernels, once per version and machine\n")
    for child in children:
        threading.Thread(target=read, args=(child,), daemon=True).start()
    compiled: set[str] = set()
    num_running, num_kernels = len(children), len(set(KERNELS))
    with tqdm(total=num_kernels, unit="kernel", file=sys.stderr, disable=not show_progress) as bar:
        while num_running:
            line = lines.get()
            if line is None:
                num_running -= 1
            elif line.startswith(COMPILED):
                compiled.add(line.removeprefix(COMPILED).strip())
                bar.update(len(compiled) - bar.n)
                if on_progress is not None:
                    on_progress(len(compiled) / num_kernels)
                if len(compiled) == num_kernels - 1:
                    bar.set_postfix_str("optimising")


def smallest_deployment() -> Deployment:
    """Any deployment will do: kernels are compiled for types, not for values."""
    curve = Curve((0, 1), (0, 1))
    tier = TierCosts(1, 0, 0, 0, curve, (curve,) * (MAX_SPECULATION_DEPTH + 1), curve, weight_bytes=1)
    costs = GpuCosts({0: tier}, DraftCosts(1, curve, 0, 1), 10**9, 1, 0, 0, 1, 1, price_usd_per_hour=1.0)
    return Deployment(costs)


def compile_part(part: str) -> None:
    """Call the entry points of one part once, on an engine without requests."""
    engine = EngineBatch(smallest_deployment(), 1, 1)
    engine.load(0, RequestTable.of([], [], []), seed=0)
    if part == "engine":
        engine.knobs["batch_cap"] = 1
        engine.advance(np.zeros(1, np.int64))
        return
    scoring, control, terms = (records((1,), dtype) for dtype in (SCORING_DTYPE, CONTROL_DTYPE, TERMS_DTYPE))
    scoring["itl_limit_ms"] = scoring["memory_limit_gb"] = scoring["window_s"] = scoring["max_gpus"] = 1.0
    requested, features = np.zeros((1, NUM_KNOBS)), np.zeros((1, NUM_WINDOW_FEATURES + 1), np.float32)
    engine.measure()
    hold_knobs(scoring, control, requested)
    score_windows(scoring, control, engine.state.window, engine.metrics, terms)
    encode_features(scoring, control, engine.state.window, engine.metrics, 1, features)
    codec = ActionCodec(load_task(BENCHMARK[0]))
    codec.decode(np.zeros((1, len(codec.knobs)), np.int64))


def main() -> int:
    """Compile everything, or one part as a child process does."""
    parser = argparse.ArgumentParser(prog="python -m llmserve_env.env.warmup", description=__doc__)
    parser.add_argument("--part", choices=PARTS, help="compile this part in this process, and report each kernel")
    part = parser.parse_args().part
    if part is None:
        warm_up()
        return 0

    def report(name: str) -> None:
        sys.stdout.write(f"{COMPILED}{name}\n")
        sys.stdout.flush()

    # The process ends with its work, so collecting garbage and tearing the interpreter down would be time lost.
    gc.disable()
    with compiled_kernels_reported(report):
        compile_part(part)
    os._exit(0)


if __name__ == "__main__":
    raise SystemExit(main())
