"""Published closed-loop measurements of vLLM servers, as deployments and loads that the simulator can express."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from benchmarks.closed_loop import Load
from llmserve_env.engine.deployment import MAX_TOKEN_BUDGET
from llmserve_env.errors import ProfileError
from llmserve_env.profiles.composing.served import Served
from llmserve_env.profiles.model_spec import ModelSpec, find_model

GPUS = {
    "a100_sxm": "a100-80gb",
    "h100_sxm": "h100-80gb",
    "h200_sxm": "h200-141gb",
    "b200_sxm": "b200-192gb",
    "b300_sxm": "b300-288gb",
    "gb200": "gb200-192gb",
    "gb200_sxm": "gb200-192gb",
    "l40s": "l40s-48gb",
    "rtx_pro_6000_server": "rtx-pro-6000-96gb",
}
TIERS = {
    "": "FP16",
    "bfloat16": "FP16",
    "fp8": "FP8",
    "fp8_block": "FP8",
    "nvfp4": "FP4",
    "w4a16_mxfp4": "FP4",
    "int4_wo": "INT4",
}
"""Quantization of a row -> tier. Experts decide where a model has them."""
NVIDIA_KV = ("FP8", "FP4")
"""Tiers in which NVIDIA's checkpoints of dense Llama models also keep keys and values in 8 bits."""
INFERENCEX_LENGTHS = ((1024, 1024), (1024, 8192), (8192, 1024))
INFERENCEX_SHORTEST = 0.8
INFERENCEX_BUDGET = 8192
"""What InferenceX sends and how it starts vLLM, as its scripts say (github.com/SemiAnalysisAI/InferenceX, Apache-2.0):
lengths between 80 and 100 % of the stated ones (RANDOM_RANGE_RATIO), max-num-batched-tokens 8192, async scheduling."""
NVIDIA_VERSION = "0.12.0"
NVIDIA_MARGIN = 1500
"""NVIDIA's own rows have exactly the stated lengths; aiconfigurator starts vLLM with max-num-batched-tokens = batch +
input length + 1500 (its generator/rule_plugin/vllm.rule, Apache-2.0). The simulator holds at most 16,384."""
FIRST_ASYNC = (0, 14)
"""The first vLLM that schedules asynchronously by default."""


@dataclass(frozen=True, slots=True)
class Case:
    """One row."""

    model: str
    system: str
    precision: str
    gpu: str
    served: Served
    load: Load
    is_async: bool
    token_budget: int
    ttft_ms: float
    tpot_ms: float
    peer_ttft_ms: float | None
    peer_tpot_ms: float | None

    @property
    def group(self) -> tuple[str, str, str, Served]:
        """Rows of one deployment; host constants for it come from other groups."""
        return self.model, self.system, self.precision, self.served

    @property
    def label(self) -> tuple[str, str, str]:
        """What errors are reported by."""
        return self.model, self.system, self.precision


def read_cases(path: Path) -> tuple[list[Case], list[str]]:
    """Rows that are not suspect: those that can be expressed, and for each other one the reason."""
    cases, refused = [], []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row.get("suspect", "0") not in ("1", "1.0"):
                try:
                    cases.append(_case(row))
                except (ProfileError, KeyError, ValueError) as error:
                    refused.append(f"{row.get('model_path')} on {row.get('system')}: {error}")
    return cases, refused


def _case(row: dict[str, str]) -> Case:
    model = find_model(row["model_path"])
    quantization = row["moe_quant_mode" if model.experts else "gemm_quant_mode"] or row["gemm_quant_mode"]
    if quantization not in TIERS:
        raise ProfileError(f"quantization {quantization!r} is not expressed")
    tier = TIERS[quantization]
    served = _served(row, model, tier)
    return Case(
        model=model.name,
        system=row["system"],
        precision=tier.lower(),
        gpu=GPUS[row["system"]],
        served=served,
        load=_load(row),
        is_async=_is_async(row),
        token_budget=_token_budget(row),
        ttft_ms=float(row["ttft_ms"]),
        tpot_ms=float(row["tpot_ms"]),
        peer_ttft_ms=_optional(row.get("peer_ttft_ms")),
        peer_tpot_ms=_optional(row.get("peer_tpot_ms")),
    )


def _served(row: dict[str, str], model: ModelSpec, tier: str) -> Served:
    ways = {
        name: round(_optional(row.get(f"{name}_size")) or 1)
        for name in ("tp", "pp", "attention_dp", "moe_tp", "moe_ep")
    }
    gpus = ways["tp"] * ways["attention_dp"]
    if model.experts is not None and ways["attention_dp"] == 1:
        # Some rows give the GPUs of the experts only.
        gpus = max(gpus, ways["moe_tp"] * ways["moe_ep"])
    is_llama = model.name.startswith("llama")
    return Served(
        model=model,
        weights=tier,
        kv_cache="fp8" if is_llama and tier in NVIDIA_KV else "fp16",
        tensor_parallel=gpus // ways["attention_dp"],
        pipeline_parallel=ways["pp"],
        expert_parallel=ways["moe_ep"] if model.experts is not None else 1,
        data_parallel_attention=ways["attention_dp"] if model.experts is not None else 1,
    )


def _is_inferencex(row: dict[str, str]) -> bool:
    """Whether InferenceX measured a row; NVIDIA's own rows are of one version."""
    return row["backend_version"] != NVIDIA_VERSION and _lengths(row) in INFERENCEX_LENGTHS


def _lengths(row: dict[str, str]) -> tuple[int, int]:
    return int(float(row["isl"])), int(float(row["osl"]))


def _load(row: dict[str, str]) -> Load:
    shortest = INFERENCEX_SHORTEST if _is_inferencex(row) else 1.0
    return Load(*_lengths(row), round(float(row["concurrency"] or row["batch_size"])), shortest)


def _token_budget(row: dict[str, str]) -> int:
    if _is_inferencex(row):
        return INFERENCEX_BUDGET
    load = _load(row)
    return min(load.concurrency + load.prompt_tokens + NVIDIA_MARGIN, MAX_TOKEN_BUDGET)


def _is_async(row: dict[str, str]) -> bool:
    version = row["backend_version"]
    if _is_inferencex(row) or version.startswith("nightly"):
        return True
    numbers = version.split(".")[:2]
    return len(numbers) == 2 and all(n.isdigit() for n in numbers) and tuple(map(int, numbers)) >= FIRST_ASYNC


def _optional(text: str | None) -> float | None:
    return float(text) if text else None
