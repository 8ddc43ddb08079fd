"""Names of composed profiles, and what they stand for."""

from __future__ import annotations

import re
from typing import Any

from llmserve_env.profiles.composing.served import Served
from llmserve_env.profiles.gpus import GPUS
from llmserve_env.profiles.model_spec import find_model, known_models

WAYS = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "ep": "expert_parallel",
    "dp": "data_parallel_attention",
}


def profile_name(gpu_name: str, served: Served) -> str:
    """`<gpu>.<model>[.kv-fp8][.tpN][.ppN][.epN][.dpN]`."""
    kv = ["kv-fp8"] if served.kv_cache == "fp8" else []
    ways = [f"{short}{n}" for short, name in WAYS.items() if (n := getattr(served, name)) > 1]
    return ".".join([gpu_name, served.model.name, *kv, *ways])


def parse_name(name: str) -> tuple[str, Served] | None:
    """The GPU and what is served, from the name of a composed profile of a known model; None for any other name."""
    gpu_name, _, rest = name.partition(".")
    models = [known for known in known_models() if rest == known or rest.startswith(f"{known}.")]
    if gpu_name not in GPUS or not models:
        return None
    model = max(models, key=len)
    parts = [part for part in rest[len(model) :].split(".") if part]
    found: dict[str, Any] = {WAYS[part[:2]]: int(part[2:]) for part in parts if re.fullmatch(r"(tp|pp|ep|dp)\d+", part)}
    if len(found) + ("kv-fp8" in parts) != len(parts):
        return None
    return gpu_name, Served(find_model(model), kv_cache="fp8" if "kv-fp8" in parts else "fp16", **found)
