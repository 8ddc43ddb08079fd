"""Published closed-loop measurements of vLLM servers, as deployments and loads that the simulator can express."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from benchmarks.closed_loop import Load
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
        load=Load(
            int(float(row["isl"])), int(float(row["osl"])), round(float(row["concurrency"] or row["batch_size"]))
        ),
        is_async=_is_async(row["backend_version"]),
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


def _is_async(version: str) -> bool:
    if version.startswith("nightly"):
        return True
    numbers = version.split(".")[:2]
    return len(numbers) == 2 and all(n.isdigit() for n in numbers) and tuple(map(int, numbers)) >= FIRST_ASYNC


def _optional(text: str | None) -> float | None:
    return float(text) if text else None
