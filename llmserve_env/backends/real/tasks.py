"""The tasks that ship for real engines, beside those of the catalogue."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from llmserve_env.tasks.catalog import load_task, read_task
from llmserve_env.tasks.task import Task

TINY_SERVER, H200_LIVE = "tiny_server", "h200_live"
REAL_TASKS = (TINY_SERVER, H200_LIVE)


def data_folder() -> Path:
    """The folder with the tasks of real mode; set LLMSERVE_TASKS to it to serve them."""
    return Path(str(files("llmserve_env.backends.real").joinpath("data")))


def real_task(name: str) -> Task:
    """A task by id, number or file; `tiny_server` is for the model of tools/tiny_model.py, `h200_live` for one H200."""
    return read_task(data_folder() / f"{name}.yaml") if name in REAL_TASKS else load_task(name)
