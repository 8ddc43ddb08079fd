"""The task that ships for real engines, beside the tasks of the catalogue."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from llmserve_env.tasks.catalog import load_task, read_task
from llmserve_env.tasks.task import Task

TINY_SERVER = "tiny_server"


def data_folder() -> Path:
    """The folder with the tasks of real mode; set LLMSERVE_TASKS to it to serve them."""
    return Path(str(files("llmserve_env.backends.real").joinpath("data")))


def real_task(name: str) -> Task:
    """A task by id, number or file; `tiny_server` is the one for the small model of tools/tiny_model.py."""
    return read_task(data_folder() / f"{TINY_SERVER}.yaml") if name == TINY_SERVER else load_task(name)
