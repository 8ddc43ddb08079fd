"""Write the composed profiles that are shipped: `python -m tools.compose_profiles` (needs aiconfigurator-core).

Per card one compressed file, `llmserve_env/profiles/data/composed/<gpu>.jsonl.gz`, a profile per line after its name.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterator
from itertools import product

from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.errors import ProfileError
from llmserve_env.profiles.composing.compose import compose_profile
from llmserve_env.profiles.composing.served import Served
from llmserve_env.profiles.composing.systems import SYSTEMS
from llmserve_env.profiles.model_spec import find_model, known_models
from llmserve_env.profiles.store import COMPOSED

WAYS = (1, 2, 4, 8)
DATE = "2026-11-16"
"""Of the tables; a profile that is made again stays the same."""


def main() -> None:
    """Compose every shipped profile of the chosen cards."""
    parser = argparse.ArgumentParser(prog="python -m tools.compose_profiles", description=__doc__)
    parser.add_argument("--gpus", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    COMPOSED.mkdir(exist_ok=True)
    for gpu_name in parser.parse_args().gpus:
        lines = list(composed_lines(gpu_name))
        text = "\n".join(lines) + "\n"
        (COMPOSED / f"{gpu_name}.jsonl.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        print(f"{gpu_name}: {len(lines)} profiles, {len(text) / 1e6:.1f} MB", flush=True)


def composed_lines(gpu_name: str) -> Iterator[str]:
    """Name, tab and profile of every combination that fits the card."""
    for name, kv_cache, tensor_parallel in product(known_models(), ("fp16", "fp8"), WAYS):
        model = find_model(name)
        spreads = sorted({1, tensor_parallel}) if model.experts is not None else (1,)
        for expert_parallel in spreads:
            try:
                served = Served(
                    model, "FP16", kv_cache, tensor_parallel=tensor_parallel, expert_parallel=expert_parallel
                )
                profile = compose_profile(gpu_name, served, DATE, TIER_NAMES)
            except ProfileError:
                continue
            yield f"{profile.name}\t{profile.model_dump_json(exclude_none=True)}"


if __name__ == "__main__":
    main()
