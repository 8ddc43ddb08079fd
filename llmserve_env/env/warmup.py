"""Compile the kernels before the first step needs them: `python -m llmserve_env.env.warmup`."""

from __future__ import annotations

import logging
import subprocess
import sys

from llmserve_env.engine.kernels.compilation import is_compiled
from llmserve_env.engine.knobs import knobs_from_mapping
from llmserve_env.env.episode import Episode
from llmserve_env.errors import LLMServeError
from llmserve_env.tasks.catalog import BENCHMARK

log = logging.getLogger("llmserve")


def is_warm() -> bool:
    """Whether the compiled kernels are in the cache, so that the first step is quick."""
    return is_compiled()


def warm_up(show_progress: bool = True) -> None:
    """Compile the kernels in a child process and wait for it; this process stays responsive."""
    if is_warm():
        return
    if show_progress:
        log.info("compiling the kernels; this happens once")
    child = subprocess.run([sys.executable, "-m", __name__], capture_output=True, text=True, check=False)
    if child.returncode:
        raise LLMServeError(f"the kernels could not be compiled:\n{child.stderr}")


if __name__ == "__main__":
    episode = Episode(BENCHMARK[0])
    episode.reset(0)
    episode.step(knobs_from_mapping({}))
