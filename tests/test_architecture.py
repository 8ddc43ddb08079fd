"""The tree keeps the promises of `tests/architecture.py`, and each checker there is seen to fail on a broken tree."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture import (
    DOORS,
    beyond_the_command_line,
    forbidden_text,
    imports,
    prints,
    third_party,
    through_the_wall,
    too_long,
    undocumented,
    wrong_direction,
)

ROOT = Path(__file__).resolve().parent.parent
# Distributions whose import name is not their own name.
IMPORT_NAMES = {"pyyaml": "yaml"}
LOADED_ON_DEMAND = ("numba", "torch", "openenv", "openai", "fastapi", "matplotlib", "scipy", "pyarrow", "pandas")


def tracked_files() -> list[Path]:
    """Files that are, or would be, committed."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def tree(root: Path, **sources: str) -> Path:
    """A tiny tree: `llmserve_env__engine__costs="import x"` writes that file."""
    for name, source in sources.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    return root


def test_imports_follow_the_direction() -> None:
    assert wrong_direction(ROOT) == []


def test_root_scripts_only_call_the_command_line() -> None:
    assert beyond_the_command_line(ROOT) == []


@pytest.mark.parametrize("package", DOORS)
def test_heavy_packages_stay_behind_their_door(package: str) -> None:
    assert through_the_wall(ROOT, package) == []


def test_what_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *(d for extra, needs in extras.items() if extra != "dev" for d in needs)]
    names = {re.split(r"[^A-Za-z0-9_.-]", requirement)[0].lower() for requirement in declared}
    importable = {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in names}
    assert third_party(ROOT) - importable - sys.stdlib_module_names == set()


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = f"import sys, llmserve_env; print(*(set({LOADED_ON_DEMAND!r}) & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def test_no_file_outgrows_its_subject() -> None:
    assert too_long(ROOT, tracked_files()) == []


def test_only_commands_print() -> None:
    assert prints(ROOT) == []


def test_every_module_says_what_it_is() -> None:
    assert undocumented(ROOT) == []


def test_no_file_names_a_registry_or_a_machine() -> None:
    assert forbidden_text(ROOT, tracked_files()) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("llmserve_env__engine__engine", "import llmserve_env.workloads.traces"),
        ("llmserve_env__workloads__traces", "from llmserve_env.engine import costs"),
        ("llmserve_env__workloads__traces", "from ..engine.costs import Curve"),
        ("llmserve_env__engine__engine", "def late():\n    from llmserve_env.env.episode import Episode"),
        ("llmserve_env__engine__engine", "from importlib import import_module\nimport_module('llmserve_env.tasks')"),
        ("llmserve_env__profiles__store", "from llmserve_env.engine.engine import Engine"),
        ("llmserve_env__units", "from . import rng"),
        ("llmserve_env__agents__fixed", "from llmserve_env import LLMServeEnv"),
        ("llmserve_env__agents__fixed", "import server.app"),
        ("llmserve_env__evaluation__rollout", "from llmserve_env.cli.main import main"),
        ("llmserve_env__client", "from llmserve_env.env.episode import Episode"),
        ("llmserve_env__env__episode", "from tests.reference import engine"),
        ("llmserve_env__drawer__things", ""),
        ("llmserve_env__server__app", "from llmserve_env.training.ppo import train"),
    ],
)
def test_an_import_against_the_direction_is_found(tmp_path: Path, file: str, source: str) -> None:
    findings = wrong_direction(tree(tmp_path, **{file: source}))
    assert len(findings) == 1
    assert findings[0].startswith(file.replace("__", "/") + ".py:")


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("llmserve_env__engine__engine", "from llmserve_env.engine import kernels\nfrom .costs import Curve"),
        ("llmserve_env__profiles__store", "from llmserve_env.engine.costs import GpuCosts"),
        ("llmserve_env__tasks__catalog", "from llmserve_env.errors import ConfigError\nimport json, numpy"),
        ("llmserve_env__cli__main", "from llmserve_env import LLMServeEnv\nfrom llmserve_env.training import ppo"),
        ("llmserve_env__server__app", "from .routes import router\nfrom llmserve_env.graders.grade import grade"),
    ],
)
def test_an_import_along_the_direction_is_left_alone(tmp_path: Path, file: str, source: str) -> None:
    assert wrong_direction(tree(tmp_path, **{file: source})) == []


def test_a_script_that_reaches_past_the_command_line_is_found(tmp_path: Path) -> None:
    tree(tmp_path, train="from llmserve_env.cli.train import main", evaluate="from llmserve_env.evaluation import x")
    assert beyond_the_command_line(tmp_path) == ["evaluate.py:1 imports llmserve_env.evaluation.x"]


def test_a_package_beside_its_door_is_found(tmp_path: Path) -> None:
    tree(
        tmp_path,
        llmserve_env__engine__kernels__schedule="from numba import njit",
        llmserve_env__engine__engine="import os\nimport numba.typed",
    )
    assert through_the_wall(tmp_path, "numba") == ["llmserve_env/engine/engine.py:2 imports numba.typed"]


def test_relative_imports_are_resolved(tmp_path: Path) -> None:
    tree(tmp_path, llmserve_env__env__episode="from . import spaces\nfrom ..tasks.task import Task")
    found = [name for _, name in imports(tmp_path, tmp_path / "llmserve_env/env/episode.py")]
    assert found == ["llmserve_env.env.spaces", "llmserve_env.tasks.task.Task"]


def test_third_party_names_are_collected(tmp_path: Path) -> None:
    tree(tmp_path, llmserve_env__a="import numpy.typing\nfrom yaml import safe_load", llmserve_env__b="import httpx")
    assert third_party(tmp_path) == {"numpy", "yaml", "httpx"}


def test_a_long_file_is_found(tmp_path: Path) -> None:
    tree(tmp_path, short="a = 1\n" * 3, long="a = 1\n" * 4)
    assert too_long(tmp_path, sorted(tmp_path.glob("*.py")), max_lines=3) == ["long.py:4 lines"]


def test_a_print_outside_a_command_is_found(tmp_path: Path) -> None:
    tree(tmp_path, llmserve_env__env__episode="print('x')", llmserve_env__cli__main="print('x')")
    assert prints(tmp_path) == ["llmserve_env/env/episode.py:1 prints"]


def test_a_module_without_docstring_is_found(tmp_path: Path) -> None:
    tree(tmp_path, llmserve_env__units='"""Units."""', llmserve_env__rng="x = 1", train="x = 1", tests__test_x="x = 1")
    assert undocumented(tmp_path) == ["train.py:1 has no docstring", "llmserve_env/rng.py:1 has no docstring"]


@pytest.mark.parametrize(
    "line",
    [
        "https://py" + "pi.org/simple",
        "files.python" + "hosted.org",
        "open('/wor" + "k/main/x')",
        "cd /roo" + "t/x",
        "# TO" + "DO later",
    ],
)
def test_a_forbidden_string_is_found(tmp_path: Path, line: str) -> None:
    file = tmp_path / "notes.md"
    file.write_text(f"fine\n{line}\n", encoding="utf-8")
    assert [finding.split()[0] for finding in forbidden_text(tmp_path, [file])] == ["notes.md:2"]


def test_ordinary_text_and_binary_files_are_left_alone(tmp_path: Path) -> None:
    text, binary = tmp_path / "a.md", tmp_path / "b.bin"
    text.write_text("see ../work/plan.md, a framework/main, and the todo list", encoding="utf-8")
    binary.write_bytes(b"\xff\xfe/wor" + b"k/main")
    assert forbidden_text(tmp_path, [text, binary]) == []
