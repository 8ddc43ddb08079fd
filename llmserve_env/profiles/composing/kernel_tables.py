"""Published kernel timings of one card: products, attention, experts and all-reduces, over the timed token counts.

A shape that was not timed is taken from its neighbours, and `notes` tells how.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.errors import ProfileError
from llmserve_env.profiles.aiconfigurator import GemmTable, read_table
from llmserve_env.profiles.composing.systems import System

BALANCE = "power_law_1.01"
"""How unevenly tokens are spread over experts in the timings that are read: nearly evenly."""
MAX_TOKENS = 16_384
BLOCK_SCALED = "fp8_block"
COMPLETE = 0.9
"""Share of shapes that must have been timed at a token count for it to be used."""


@dataclass
class KernelTables:
    """The timings of vLLM's kernels on one card."""

    system: System
    notes: list[str] = field(default_factory=list)
    """What was not timed as it is used."""
    _gemms: dict[str, GemmTable] = field(default_factory=dict)

    def note(self, what: str) -> None:
        """Keep a note, once."""
        if what not in self.notes:
            self.notes.append(what)

    def _rows(self, kind: str, table: str) -> Any:
        return read_table(self.system.folder, kind, "vllm", self.system.version, table)

    @cached_property
    def tokens(self) -> Array:
        """Token counts of all curves."""
        return np.asarray(self.gemm("bfloat16").m)

    def gemm(self, dtype: str) -> GemmTable:
        """Products of a type, padded to a larger count where that ran faster."""
        if dtype not in self._gemms:
            rows = self._rows("gemm", "gemm")
            rows = rows[_known(rows.gemm_dtype, dtype, f"products on {self.system.name}") & (rows.m <= MAX_TOKENS)]
            wide = rows.groupby(["n", "k", "m"]).latency.min().unstack("m")
            wide = wide.loc[:, wide.notna().mean() > COMPLETE].dropna(axis=0)
            padded = wide.iloc[:, ::-1].cummin(axis=1).iloc[:, ::-1]
            shapes = {(int(n), int(k)): padded.loc[(n, k)].to_numpy(dtype=float) for n, k in padded.index}
            self._gemms[dtype] = GemmTable(padded.columns.to_numpy(dtype=np.int64), shapes)
        return self._gemms[dtype]

    def product_ms(self, dtype: str, outputs: int, inputs: int) -> Array:
        """Milliseconds of one product."""
        if dtype == BLOCK_SCALED:
            # Published times of block-scaled products are bound by their launch up to a thousand tokens.
            self.note("block-scaled FP8 products: those with a scale per channel, times the ratio at 16,384 tokens")
            plain, blocks = (self._product_ms(name, outputs, inputs) for name in ("fp8", dtype))
            return np.asarray(plain * max(1.0, float(blocks[-1] / plain[-1])))
        return self._product_ms(dtype, outputs, inputs)

    def _product_ms(self, dtype: str, outputs: int, inputs: int) -> Array:
        table = self.gemm(dtype)
        ms = np.interp(self.tokens, table.m, table.ms(outputs, inputs))
        return np.maximum.accumulate(np.maximum(ms, 0.0))

    def all_reduce_ms(self, gpus: int, elements: Array) -> Array:
        """An all-reduce of 16-bit numbers among GPUs of one node."""
        source = self.system.all_reduce or ("vllm", self.system.version)
        rows = read_table(self.system.folder, "comm", *source, "custom_allreduce")
        rows = rows[_known(rows.num_gpus, gpus, f"all-reduces on {self.system.name}, for tensor_parallel")]
        return _over(rows.groupby("message_size").latency.min(), elements)

    def attention_rows(
        self, phase: str, heads: int, kv_heads: int, head_dim: int, kv_dtype: str, window: int = 0
    ) -> Any:
        """Timed 16-bit attention of one layer (`phase` is context or generation), with the nearest numbers of heads."""
        rows = self._rows("attention", f"{phase}_attention")
        if "window_size" not in rows:
            rows = rows.assign(window_size=0)
        rows = rows[_known(rows.window_size, window, f"attention on {self.system.name}, for a window")]
        rows = rows[rows.attn_dtype == "bfloat16"]
        rows = rows[_known(rows.head_dim, head_dim, f"attention on {self.system.name}, for head_dim")]
        rows = rows[_known(rows.kv_cache_dtype, kv_dtype, f"attention on {self.system.name}, for a KV cache")]
        # Decoding reads keys and values, so their heads decide; a prompt's attention computes for every query head.
        timed = set(zip(rows.num_heads.tolist(), rows.num_key_value_heads.tolist(), strict=True))
        gaps = {pair: (_gap(pair[0], heads), _gap(pair[1], kv_heads)) for pair in timed}
        near = min(timed, key=lambda pair: gaps[pair] if phase == "context" else gaps[pair][::-1])
        scale = heads / near[0] if phase == "context" else kv_heads / near[1]
        if near != (heads, kv_heads):
            self.note(f"{phase} attention of {heads} heads over {kv_heads} from {near[0]} over {near[1]}")
        rows = rows[(rows.num_heads == near[0]) & (rows.num_key_value_heads == near[1])]
        rows = rows.groupby(["batch_size", "isl", "step"], as_index=False).latency.min()
        return rows.assign(latency=rows.latency * scale)

    def experts_ms(self, dtype: str, shape: tuple[int, int, int, int], split: int, spread: int) -> Array:
        """Routed experts of a layer of `shape` (hidden, inner, per token, count), over tokens of the whole replica."""
        rows = self._rows("moe", "moe")
        rows = rows[_known(rows.moe_dtype, dtype, f"experts on {self.system.name}") & (rows.distribution == BALANCE)]
        columns = (rows.hidden_size, rows.inter_size, rows.topk, rows.num_experts)
        timed = sorted(set(zip(*(column.tolist() for column in columns), strict=True)))
        near = min(timed, key=lambda s: sum(_gap(a, b) for a, b in zip(s, shape, strict=True)))
        scale = float(np.prod(shape[:3])) / float(np.prod(near[:3]))
        if near != shape:
            self.note(f"experts {shape} (hidden, inner, per token, count) from {near}, times {scale:.2f}")
        for column, size in zip(("hidden_size", "inter_size", "topk", "num_experts"), near, strict=True):
            rows = rows[rows[column] == size]
        rows = rows[rows.moe_ep_size == _nearest(set(rows.moe_ep_size), spread)]
        return np.asarray(scale * self._split(rows, split, f"experts in {dtype}"))

    def _split(self, rows: Any, ways: int, what: str) -> Array:
        """Over tokens, for experts split so many ways; linear in the share of an expert where that was not timed."""
        curves = {
            int(n): _over(rows[rows.moe_tp_size == n].groupby("num_tokens").latency.min(), self.tokens)
            for n in set(rows.moe_tp_size)
        }
        if ways in curves:
            return curves[ways]
        near = sorted(curves, key=lambda n: _gap(n, ways))[:2]
        self.note(f"{what} split {ways} ways from {' and '.join(map(str, near))}")
        if len(near) == 1:
            return np.asarray(curves[near[0]] * near[0] / ways)
        a, b = near
        slope = (curves[a] - curves[b]) / (1 / a - 1 / b)
        return np.maximum(curves[a] + slope * (1 / ways - 1 / a), 0.5 * np.minimum(curves[a], curves[b]))

    def latent_rows(self, phase: str, heads: int, kv_dtype: str, gemm: str) -> Any:
        """Timed modules of latent attention, projections included."""
        rows = self._rows("mla", f"mla_{phase}_module")
        rows = rows[_known(rows.kv_cache_dtype, kv_dtype, f"latent attention on {self.system.name}, for a KV cache")]
        rows = rows[rows.gemm_type == (gemm if gemm in set(rows.gemm_type) else "bfloat16")]
        near = _nearest(set(rows.num_heads), heads)
        if near != heads:
            self.note(f"latent attention of {heads} heads from {near}")
        return rows[rows.num_heads == near].groupby(["batch_size", "isl", "step"], as_index=False).latency.min()

    def latent_products_ms(self, heads: int) -> Array:
        """The two batched products around latent attention."""
        rows = self._rows("mla_bmm", "mla_bmm")
        rows = rows[rows.num_heads == _nearest(set(rows.num_heads), heads)]
        both = [rows[rows.op_name == name].groupby("num_tokens").latency.min() for name in sorted(set(rows.op_name))]
        return np.asarray(np.sum([_over(part, self.tokens) for part in both], axis=0))


def _over(timed: Any, at: Array) -> Array:
    """A timing that never falls, linear between the timed sizes and beyond the last one."""
    x, y = timed.index.to_numpy(float), np.maximum.accumulate(timed.to_numpy(float))
    beyond = y[-1] + (y[-1] - y[-2]) / (x[-1] - x[-2]) * (at - x[-1])
    return np.where(at > x[-1], beyond, np.interp(at, x, y))


def _known(column: Any, value: Any, what: str) -> Any:
    """Which rows have a value; an error says which values were timed."""
    if value not in set(column):
        timed = ", ".join(str(one) for one in sorted(set(column)))
        raise ProfileError(f"{what}: {value} was not timed; timed: {timed}")
    return column == value


def _nearest(timed: set[int], wanted: int) -> int:
    return int(min(timed, key=lambda size: _gap(size, wanted)))


def _gap(a: float, b: float) -> float:
    return float(abs(np.log(a / b)))
