"""What is written down of one iteration, and where the recorder and the engine's process meet."""

from __future__ import annotations

FOLDER_VARIABLE = "LLMSERVE_RECORDER_DIR"
CONTROL = "run.json"
COLUMNS = (
    "t_sched",
    "t_sched_end",
    "running",
    "waiting",
    "tokens",
    "reqs",
    "prefill_tokens",
    "prefill_work",
    "decode_ctx",
    "free_blocks",
    "decode_reqs",
    "new_reqs",
    "preempted",
    "t_launch",
    "t_launch_end",
    "t_output",
    "t_output_end",
    "gpu_ms",
)
"""A row per iteration. Times in seconds: scheduling, launching the forward pass, taking its output in."""
