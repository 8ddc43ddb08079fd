"""Kernel timings published in the `aiconfigurator-core` package (Apache-2.0, NVIDIA): only its tables are read.

The package is an optional dependency (`pip install llmserve-env[profiles]`) and is imported only in this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llmserve_env.errors import ProfileError
from llmserve_env.profiles.architectures import Architecture

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TableSet:
    """Which of the published tables describe one card; for GEMM, the fastest framework's kernel at each size."""

    system: str
    frameworks: tuple[tuple[str, str], ...]
    """(framework, version) whose 16-bit GEMM timings are read."""
    attention: tuple[tuple[str, str], ...]
    """(framework, version) whose attention timings are read."""
    quantized: dict[str, tuple[tuple[tuple[str, str], ...], str]]
    """Tier -> (frameworks, dtype) of the kernel that represents it, if one was timed on this card."""

    def gemm_source(self, tier: str) -> tuple[tuple[tuple[str, str], ...], str]:
        """Frameworks and dtype of a tier's GEMM timings; the 16-bit ones if the tier has none."""
        return self.quantized.get(tier, (self.frameworks, "bfloat16"))


AMPERE = (("vllm", "0.14.0"), ("sglang", "0.5.10"), ("trtllm", "1.0.0"))
HOPPER = (("vllm", "0.24.0"), ("sglang", "0.5.14"), ("trtllm", "1.3.0rc20"))
TENSORRT = (("trtllm", "1.0.0"),)
# Attention is vLLM's alone: the trtllm 1.0.0 timings of the A100 imply up to 3 TB/s, above the memory's peak, and the
# sglang kernel reads there at half the rate of the others beyond 32k tokens of context.
TABLES = {
    "a100-80gb": TableSet("a100_sxm", AMPERE, AMPERE[:1], {"INT8": (TENSORRT, "sq"), "INT4": (TENSORRT, "int4_wo")}),
    "h100-80gb": TableSet("h100_sxm", HOPPER, HOPPER[:1], {"INT8": (HOPPER, "fp8"), "FP8": (HOPPER, "fp8")}),
    "h200-141gb": TableSet("h200_sxm", HOPPER, HOPPER[:1], {"INT8": (HOPPER, "fp8"), "FP8": (HOPPER, "fp8")}),
}


def package_version() -> str:
    """The installed package's version; the error says how to install a missing one."""
    try:
        return metadata.version("aiconfigurator-core")
    except metadata.PackageNotFoundError as error:
        raise ProfileError(
            "importing published kernel timings needs aiconfigurator-core: pip install 'llmserve-env[profiles]'"
        ) from error


def _data_folder(system: str) -> Path:
    package_version()
    module = import_module("aiconfigurator_core")
    return Path(str(module.__file__)).parent / "systems" / "data" / system


@cache
def read_table(system: str, kind: str, framework: str, version: str, table: str) -> Any:
    """One published table as a data frame; ProfileError if the package lacks it."""
    import pandas as pd

    path = _data_folder(system) / kind / framework / version / f"{table}_perf.parquet"
    if not path.is_file():
        raise ProfileError(
            f"aiconfigurator-core {package_version()} has no {kind}/{framework}/{version}/{table} for {system}"
        )
    return pd.read_parquet(path)


@dataclass(frozen=True)
class GemmTable:
    """Timed matrix products of one dtype on one card: milliseconds at (n, k) over m, never decreasing."""

    m: NDArray[np.int64]
    shapes: dict[tuple[int, int], Floats]

    def ms(self, n: int, k: int) -> Floats:
        """Times over `m` of an n x k product, linear in n and k between timed shapes and beyond the largest."""
        k_low, k_high = _bracket(sorted({shape[1] for shape in self.shapes}), k)
        low, high = self._at_k(n, k_low), self._at_k(n, k_high)
        return _between(low, high, k_low, k_high, k)

    def streaming_bytes_per_ms(self, bytes_per_weight: float) -> float:
        """The best rate at which any timed product read its weights."""
        return max(n * k * bytes_per_weight / float(times[0]) for (n, k), times in self.shapes.items())

    def _at_k(self, n: int, k: int) -> Floats:
        n_low, n_high = _bracket(sorted({shape[0] for shape in self.shapes if shape[1] == k}), n)
        return _between(self.shapes[n_low, k], self.shapes[n_high, k], n_low, n_high, n)


def _bracket(sizes: list[int], size: int) -> tuple[int, int]:
    if size in sizes:
        return size, size
    upper = min(max(int(np.searchsorted(sizes, size)), 1), len(sizes) - 1)
    return sizes[upper - 1], sizes[upper]


def _between(low: Floats, high: Floats, at_low: int, at_high: int, at: int) -> Floats:
    if at_low == at_high:
        return low
    share = (at - at_low) / (at_high - at_low)
    return np.asarray(low + (high - low) * share, dtype=float)


def gemm_table(tables: TableSet, tier: str) -> GemmTable:
    """The GEMM timings of a tier's kernel, padded to a larger size where that ran faster, as engines pad batches."""
    import pandas as pd

    frameworks, dtype = tables.gemm_source(tier)
    rows = pd.concat(
        [read_table(tables.system, "gemm", framework, version, "gemm") for framework, version in frameworks]
    )
    rows = rows[(rows.gemm_dtype == dtype) & (rows.n >= 1024) & (rows.k >= 1024)]
    per_framework = rows.groupby(["framework", "n", "k", "m"]).latency.median()
    fastest = per_framework.groupby(["n", "k", "m"]).min().unstack("m")
    fastest = fastest.loc[:, fastest.notna().mean() > 0.9].dropna(axis=0)
    padded = fastest.iloc[:, ::-1].cummin(axis=1).iloc[:, ::-1]
    shapes = {(int(n), int(k)): padded.loc[(n, k)].to_numpy(dtype=float) for n, k in padded.index}
    return GemmTable(padded.columns.to_numpy(dtype=np.int64), shapes)


def attention_rows(tables: TableSet, architecture: Architecture, phase: str) -> tuple[Floats, Floats, Floats]:
    """(sequences, tokens each, milliseconds of one layer) of 16-bit attention; `phase` is context or generation."""
    import pandas as pd

    kept = []
    for framework, version in tables.attention:
        rows = read_table(tables.system, "attention", framework, version, f"{phase}_attention")
        wanted = (rows.num_heads == architecture.heads) & (rows.num_key_value_heads == architecture.kv_heads)
        wanted &= (
            (rows.head_dim == architecture.head_dim)
            & (rows.kv_cache_dtype == "bfloat16")
            & (rows.attn_dtype == "bfloat16")
        )
        if "window_size" in rows:
            wanted &= rows.window_size == 0
        kept.append(rows[wanted])
    fastest = pd.concat(kept).groupby(["batch_size", "isl", "step"], as_index=False).latency.min()
    tokens = fastest.isl if phase == "context" else fastest.step + 1
    return fastest.batch_size.to_numpy(float), tokens.to_numpy(float), fastest.latency.to_numpy(float)
