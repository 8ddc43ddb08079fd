"""Read recordings of a real engine: `vllm bench` results, and iterations with their requests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from llmserve_env.errors import ProfileError
from llmserve_env.json_files import read_json
from llmserve_env.profiles.fitting import Iteration
from llmserve_env.units import MS_PER_S

DECODE_KIND = 0
"""The kind of an item that decodes, in recorded iterations."""

SUMMED_COLUMNS = (
    *("run", "reqs", "decode_reqs", "decode_ctx", "prefill_tokens", "prefill_work"),
    *("t_sched", "t_launch_end", "gpu_ms"),
)
GPU_DECIDES = 1.2
"""An iteration whose GPU time is this many times its launch did not wait for kernels."""


@dataclass(frozen=True)
class Observation:
    """A measured time, and the iterations that add up to it, as (count, iteration) pairs."""

    parts: tuple[tuple[float, Iteration], ...]
    ms: float
    what: str


def read_bench(path: Path, tier: str) -> list[Observation]:
    """Read a result file of `vllm bench serve` (closed loop, with --max-concurrency) or `vllm bench latency`."""
    result = read_json(path, "a result file of vllm bench", ProfileError)
    if not isinstance(result, dict):
        raise ProfileError(f"{path} is not a result file of vllm bench: it must hold an object")
    if "avg_latency" in result:
        return [_latency(path, result, tier)]
    if "mean_tpot_ms" in result:
        return list(_serve(path, result, tier))
    raise ProfileError(f"{path.name} holds neither avg_latency (of bench latency) nor mean_tpot_ms (of bench serve)")


def _latency(path: Path, result: dict[str, Any], tier: str) -> Observation:
    missing = [key for key in ("batch_size", "input_len", "output_len") if key not in result]
    if missing:
        raise ProfileError(
            f"{path.name} does not say its {', '.join(missing)}: vllm bench latency leaves them out, so add them"
        )
    batch, prompt, output = (int(result[key]) for key in ("batch_size", "input_len", "output_len"))
    parts = [(1.0, _prefill(tier, batch, prompt))]
    if output > 1:
        parts.append((output - 1.0, _decode(tier, batch, prompt + output // 2)))
    what = f"{path.name}: {batch} x {prompt} + {output}"
    return Observation(tuple(parts), float(result["avg_latency"]) * MS_PER_S, what)


def _serve(path: Path, result: dict[str, Any], tier: str) -> Iterable[Observation]:
    concurrency = result.get("max_concurrency")
    completed = int(result.get("completed", 0))
    if not concurrency or completed == 0:
        raise ProfileError(f"{path.name} ran without --max-concurrency or completed nothing: its batch size is unknown")
    prompt, output = (round(result[key] / completed) for key in ("total_input_tokens", "total_output_tokens"))
    sequences = min(int(concurrency), completed)
    what = f"{path.name}: {sequences} x {prompt} + {output}"
    yield Observation(_closed_loop(tier, sequences, prompt, output), float(result["mean_tpot_ms"]), what + ", TPOT")
    if sequences == 1:
        yield Observation(((1.0, _prefill(tier, 1, prompt)),), float(result["median_ttft_ms"]), what + ", TTFT")


def _closed_loop(tier: str, sequences: int, prompt: int, output: int) -> tuple[tuple[float, Iteration], ...]:
    """The iterations of a mean output token: while a request decodes, the prompt of every other one comes once."""
    decode = _decode(tier, sequences, prompt + output // 2)
    share = (sequences - 1) / max(output - 1, 1)
    prompts = max(1, round(share))
    tokens, pairs = prompts * prompt, prompts * prompt * (prompt + 1) // 2
    mixed = replace(decode, chunks=prompts, prefill_tokens=tokens, prefill_pairs=pairs)
    mixed_share = min(share / prompts, 1.0)
    return ((1.0 - mixed_share, decode), (mixed_share, mixed))


def read_iterations(folder: Path, tier: str, run: str | None = None) -> list[Iteration]:
    """Recorded iterations: `steps.parquet` with times in seconds and `items.parquet` with each request's tokens.

    Steps have `dur`, `t_start` and `t_end`, or `t_sched` and `t_exec_end`; items have `n_tokens`, `computed_before` and
    `kind` (0: decode). Iterations with draft tokens are left out: their time includes proposing them. Steps that say
    themselves what was in them, as `tools.recorder` writes them on a GPU, need no items.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if not (folder / "steps.parquet").is_file():
        raise ProfileError(f"{folder} has no steps.parquet; recorded iterations are steps.parquet and items.parquet")
    if set(SUMMED_COLUMNS) <= set(pq.read_schema(folder / "steps.parquet").names):
        return _summed_iterations(folder, tier, run)
    if not (folder / "items.parquet").is_file():
        raise ProfileError(
            f"{folder} has no items.parquet, and its steps lack some of {', '.join(SUMMED_COLUMNS)}, which say what "
            "an iteration computed"
        )
    steps, items = (pq.read_table(folder / f"{name}.parquet") for name in ("steps", "items"))
    if run is not None:
        steps, items = (table.filter(pc.equal(pc.cast(table["run"], "string"), run)) for table in (steps, items))
    if steps.num_rows == 0:
        raise ProfileError(f"{folder} holds no iterations{f' of run {run!r}' if run else ''}")
    times = _step_ms(steps.to_pydict())
    sums: dict[tuple[str, int], list[int]] = {}
    for row in zip(
        *(items[c].to_pylist() for c in ("run", "step", "n_tokens", "computed_before", "kind", "spec")), strict=True
    ):
        _add_item(sums, row)
    return [
        Iteration(tier, 1, decoding, context, chunks, tokens, pairs, times[key])
        for key, (decoding, context, chunks, tokens, pairs, drafts) in sums.items()
        if drafts == 0 and times.get(key, 0.0) > 0.0
    ]


def _summed_iterations(folder: Path, tier: str, run: str | None) -> list[Iteration]:
    """Iterations whose time the GPU decided: decodes after decodes, and prefills that were launched in time."""
    import pyarrow.parquet as pq

    steps = pq.read_table(folder / "steps.parquet", columns=list(SUMMED_COLUMNS)).to_pylist()
    steps = [step for step in steps if run is None or str(step["run"]) == run]
    if not steps:
        raise ProfileError(f"{folder} holds no iterations{f' of run {run!r}' if run else ''}")
    found = []
    for before, step in pairwise(steps):
        is_decode, follows_decode = step["prefill_tokens"] == 0, before["prefill_tokens"] == 0
        launch_ms = MS_PER_S * (step["t_launch_end"] - step["t_sched"])
        gpu_decided = follows_decode if is_decode else step["gpu_ms"] > GPU_DECIDES * launch_ms
        if gpu_decided and step["run"] == before["run"] and step["gpu_ms"] > 0:
            decoding, chunks = step["decode_reqs"], step["reqs"] - step["decode_reqs"]
            prefill = step["prefill_tokens"], step["prefill_work"]
            found.append(Iteration(tier, 1, decoding, step["decode_ctx"], chunks, *prefill, step["gpu_ms"]))
    return found


def _add_item(sums: dict[tuple[str, int], list[int]], row: tuple[Any, ...]) -> None:
    run, step, tokens, past, kind, drafts = row
    total = sums.setdefault((run, step), [0, 0, 0, 0, 0, 0])
    total[5] += drafts
    if kind == DECODE_KIND:
        total[0] += 1
        total[1] += past + tokens
    else:
        total[2] += 1
        total[3] += tokens
        total[4] += tokens * past + tokens * (tokens + 1) // 2


def _step_ms(steps: dict[str, list[Any]]) -> dict[tuple[str, int], float]:
    if "dur" in steps:
        seconds = steps["dur"]
    else:
        start, end = ("t_start", "t_end") if "t_start" in steps else ("t_sched", "t_exec_end")
        seconds = [after - before for before, after in zip(steps[start], steps[end], strict=True)]
    return {(run, step): s * MS_PER_S for run, step, s in zip(steps["run"], steps["step"], seconds, strict=True)}


def _prefill(tier: str, prompts: int, tokens: int) -> Iteration:
    pairs = prompts * tokens * (tokens + 1) // 2
    return Iteration(tier, 1, 0, 0, prompts, prompts * tokens, pairs, 0.0)


def _decode(tier: str, sequences: int, context: int) -> Iteration:
    return Iteration(tier, 1, sequences, sequences * context, 0, 0, 0, 0.0)
