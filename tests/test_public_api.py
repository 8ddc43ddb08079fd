"""What `llmserve_env` offers: every name loads, from a package that loads nothing heavy by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import llmserve_env

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("fastapi", "matplotlib", "numba", "openai", "openenv", "optuna", "pyarrow", "ray", "scipy", "torch")


def loaded_by(program: str) -> list[str]:
    """Heavy packages that a program loads."""
    program += f"; import sys; print(*(name for name in {HEAVY} if name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout.split()


@pytest.mark.parametrize("name", llmserve_env.__all__)
def test_every_public_name_loads(name: str) -> None:
    assert getattr(llmserve_env, name) is not None
    assert name in dir(llmserve_env)


def test_every_name_with_a_home_is_public() -> None:
    assert {*llmserve_env._HOMES, "register"} == set(llmserve_env.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(llmserve_env, "nonsense")  # noqa: B009 - the attribute must not exist for a type checker either


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_by("import llmserve_env") == []


def test_loading_a_task_compiles_nothing() -> None:
    assert "numba" not in loaded_by("import llmserve_env; llmserve_env.task_ids()")


def test_the_public_names_play_and_grade_an_episode() -> None:
    task = llmserve_env.load_task("static_workload")
    played = llmserve_env.play(llmserve_env.make_agent("default_knobs"), task, [1])[0]
    assert llmserve_env.grade(played.log()) == llmserve_env.grade_episode(played)
