"""What each range of seeds is for. The ranges are disjoint, so no result is reported on traffic it was tuned on."""

from __future__ import annotations

from llmserve_env.agents.forecast import FORECAST_SEEDS

SEED_RANGES = {
    "references": range(100_000, 110_000),
    "tuning": range(200_000, 210_000),
    "evaluation": range(300_000, 310_000),
    "answers": range(400_000, 410_000),
    "forecast": FORECAST_SEEDS,
    "training": range(1_000_000, 2**31),
}
"""`tuning` finds constants and chooses checkpoints; tables report `evaluation`; fleets are verified on `answers`."""
REPORTED_SEEDS = range(301_000, 301_020)
"""Seeds of the published tables and of the leaderboard, and the first ones that commands evaluate on.

They are public constants of the evaluation range. Three seeds before them (300000 to 300002) were looked at while the
planner was developed, so nothing is reported on those.
"""
