"""What the plug-in reports: a status written at once is there, whatever waits to be written in the background."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from llmserve_env.backends.real.plugin.llmserve_steering.control import Status, StatusWriter, read_status

STATUS = Status(
    generation=0,
    batch_cap=8,
    token_budget=512,
    speculation_depth=0,
    num_blocks=100,
    withheld_blocks=0,
    max_batch_cap=8,
    max_token_budget=512,
    max_speculation_depth=0,
    block_tokens=16,
    max_model_len=1024,
    vocabulary=1000,
    async_scheduling=True,
    prefix_caching=True,
    iterations=0,
    busy_s=0.0,
)


def test_a_status_written_at_once_is_there_and_is_not_replaced_by_an_older_one(tmp_path: Path) -> None:
    writer = StatusWriter(tmp_path)
    for i in range(200):
        writer.write_soon(replace(STATUS, iterations=2 * i))
        writer.write(replace(STATUS, iterations=2 * i + 1))
        assert read_status(tmp_path).iterations == 2 * i + 1
