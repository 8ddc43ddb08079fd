"""What the plug-in costs: iteration times of one engine with the plug-in in the way and without, in turns."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from llmserve_env.backends.real.in_process import InProcessEngine, InProcessProvider
from llmserve_env.evaluation.statistics import summarise
from tools.card_experiment.engines import EnginePlan
from tools.card_experiment.playing import start

SCHEDULER = "tools.card_experiment.alternating.AlternatingScheduler"
BLOCKS = "blocks.json"
"""Where the scheduler writes its blocks; it cannot be imported outside vLLM's process."""
REPOSITORY = Path(__file__).resolve().parents[2]
PROMPT_TOKENS = 128
FIRST_TOKEN_ID = 10


@dataclass(frozen=True, slots=True)
class Overhead:
    """Iteration times of one batch, and what the plug-in adds to them."""

    sequences: int
    is_recording: bool
    """Whether the plug-in also described every iteration in a file, as calibration asks it to."""
    own_ms: float
    """Mean iteration of vLLM's own scheduler."""
    steered_ms: float
    added: float
    """Share that the plug-in adds: each block against the mean of its neighbours."""
    low: float
    high: float
    blocks: int


def added_shares(blocks: Sequence[dict[str, Any]]) -> list[float]:
    """What each steered block between two others takes beyond their mean, which cancels the growth of contexts."""
    shares = []
    for before, block, after in zip(blocks, blocks[1:], blocks[2:], strict=False):
        if block["is_steered"] and not before["is_steered"] and not after["is_steered"]:
            own_ms = 0.5 * (before["iteration_ms"] + after["iteration_ms"])
            shares.append(block["iteration_ms"] / own_ms - 1.0)
    return shares


def overhead_of(blocks: Sequence[dict[str, Any]], sequences: int, is_recording: bool) -> Overhead:
    """Means and the bootstrap interval of the added share."""
    found = summarise(added_shares(blocks))
    means = [np.mean([b["iteration_ms"] for b in blocks if b["is_steered"] is kind]) for kind in (False, True)]
    return Overhead(
        sequences, is_recording, float(means[0]), float(means[1]), found.mean, *found.ci95, blocks=len(blocks)
    )


async def _decode(engine: InProcessEngine, sequences: int, output_tokens: int, vocabulary: int) -> None:
    """Sequences that start together and are as long as each other."""

    async def one(number: int) -> None:
        prompt = np.random.default_rng(number).integers(FIRST_TOKEN_ID, vocabulary, PROMPT_TOKENS).tolist()
        async for _ in engine.tokens(f"overhead-{sequences}-{number}", prompt, output_tokens):
            pass

    await asyncio.gather(*(one(number) for number in range(sequences)))


def measure(plan: EnginePlan, out: Path, model: Path | None = None) -> list[Overhead]:
    """Decode batches of the plan's sizes, without and with a recording of iterations; kept in `overhead.json`."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))
    engine = start(plan, out / "control", model, scheduler=SCHEDULER)
    found = []
    try:
        for is_recording in (False, True):
            provider = InProcessProvider(engine, record_iterations=is_recording)
            provider.check()
            vocabulary = provider.status().vocabulary
            provider.steer(batch_cap=None)
            for sequences, output_tokens in plan.overhead_batches:
                (engine.folder / BLOCKS).unlink(missing_ok=True)
                asyncio.run(_decode(engine, sequences, output_tokens, vocabulary))
                blocks = json.loads((engine.folder / BLOCKS).read_text(encoding="utf-8"))["blocks"]
                found.append(overhead_of(blocks, sequences, is_recording))
                out.mkdir(parents=True, exist_ok=True)
                rows = [asdict(row) for row in found]
                (out / "overhead.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    finally:
        engine.close()
    return found


def as_text(found: Sequence[Overhead]) -> str:
    """A line per batch."""
    return "\n".join(
        f"{row.sequences} sequences{', recording' if row.is_recording else ''}: {row.own_ms:.3f} ms per iteration, "
        f"{row.steered_ms:.3f} ms with the plug-in; it adds {row.added:+.2%} ({row.low:+.2%} to {row.high:+.2%}, "
        f"{row.blocks} blocks)"
        for row in found
    )
