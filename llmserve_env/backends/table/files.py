"""Where the shipped lookup table lies; `python -m tools.make_data` writes it from the engine."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

DATA_FOLDER = Path(str(files("llmserve_env").joinpath("data")))
SHIPPED_TABLE = DATA_FOLDER / "traces_llama3_8b.parquet"
