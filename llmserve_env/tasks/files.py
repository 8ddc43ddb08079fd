"""Where task files lie, read as plain mappings: listing them must not load what using them needs."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from llmserve_env.errors import ConfigError

BENCHMARK = ("static_workload", "bursty_workload", "adversarial_multitenant")
"""The tasks of the headline table, in order of difficulty."""


def task_files() -> dict[str, Path]:
    """Path of every task by its file's name: those of the package, then those of the folders in LLMSERVE_TASKS."""
    shipped = files("llmserve_env.tasks").joinpath("data").iterdir()
    found = {Path(str(f)).stem: Path(str(f)) for f in shipped if str(f).endswith(".yaml")}
    for folder in filter(None, os.environ.get("LLMSERVE_TASKS", "").split(os.pathsep)):
        if not Path(folder).is_dir():
            raise ConfigError(f"LLMSERVE_TASKS names {folder!r}, which is not a folder")
        found |= {path.stem: path for path in sorted(Path(folder).glob("*.yaml"))}
    return found


def task_ids() -> list[str]:
    """Benchmark tasks first, then the others by name."""
    others = sorted(set(task_files()) - set(BENCHMARK))
    return [*BENCHMARK, *others]


def read_mapping(path: Path) -> dict[str, Any]:
    """The fields of one YAML file."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: a task file is a mapping of fields; got {type(data).__name__}")
    return data
