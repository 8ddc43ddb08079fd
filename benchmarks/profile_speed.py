"""How long composing and loading a profile take, and how much the profiles weigh: `python -m benchmarks.profile_speed`.

Every time is that of a fresh process, after the imports. Composing needs the extra `profiles`.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from statistics import median

from benchmarks.markdown import markdown_table
from llmserve_env.profiles.store import COMPOSED

REPEATS = 5
LOADED = ("a100-40gb.llama-3-8b", "h200-141gb.qwen3-32b", "b300-288gb.kimi-k2.tp8")
COMPOSED_MODELS = (("h100-80gb", "qwen3-32b"), ("h200-141gb", "gpt-oss-120b"), ("b200-192gb", "deepseek-v3"))
LOAD = """
import time
from llmserve_env.profiles.store import load_profile
start = time.perf_counter()
load_profile({name!r})
print(time.perf_counter() - start)
"""
COMPOSE = """
import time
from llmserve_env.profiles.composing.compose import compose_profile
from llmserve_env.profiles.composing.served import Served
from llmserve_env.profiles.model_spec import find_model
start = time.perf_counter()
compose_profile({gpu!r}, Served(find_model({model!r}), "FP8", tensor_parallel=8), "2026-01-01")
print(time.perf_counter() - start)
"""


def seconds(code: str) -> float:
    """The median time that a program prints in fresh processes."""
    runs = (subprocess.run([sys.executable, "-c", code], capture_output=True, check=True) for _ in range(REPEATS))
    return median(float(run.stdout) for run in runs)


def main() -> None:
    """Print the times and the size."""
    rows = [[f"load {name}", f"{1e3 * seconds(LOAD.format(name=name)):.0f} ms"] for name in LOADED]
    if find_spec("aiconfigurator_core") is not None:
        for gpu, model in COMPOSED_MODELS:
            rows.append(
                [f"compose {model} in FP8 on 8 x {gpu}", f"{seconds(COMPOSE.format(gpu=gpu, model=model)):.1f} s"]
            )
    else:
        rows.append(["compose", "needs the extra `profiles`"])
    size = sum(path.stat().st_size for path in COMPOSED.glob("*.jsonl.gz"))
    rows.append(["composed profiles in the wheel", f"{size / 1e6:.2f} MB"])
    print(markdown_table(["what", "median"], rows))


if __name__ == "__main__":
    main()
