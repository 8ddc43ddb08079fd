"""What the tree promises, as data and as small checkers over source text; `test_architecture.py` applies them.

Each checker takes a root folder and returns its findings as `path:line what is wrong`, so an empty list is a pass.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "llmserve_env"
MAX_LINES = 300

_BASE = {"arrays", "errors", "json_files", "own_code", "units", "rng", "version"}
_ENGINE = _BASE | {"request_table", "request_outcomes"}
_TASKS = _ENGINE | {"engine", "workloads", "profiles"}
_BACKENDS = _TASKS | {"tasks", "llm_prices"}
_ENV = _BACKENDS | {"backends"}
_AGENTS = _ENV | {"env"}
_FLEET = _TASKS | {"tasks"}
_EVALUATION = _AGENTS | {"graders", "agents"}
_PLANNING = _EVALUATION | {"evaluation"}
_WIRE = {"models", "client"}
_SERVER = _PLANNING | _WIRE
_CLI = _SERVER | {"fleet", "gym_envs", "leaderboard", "pilot", "planning", "training", "server", "__init__"}

LAYERS: dict[str, set[str]] = {
    "arrays": set(),
    "errors": set(),
    "version": set(),
    "llm_prices": set(),
    "json_files": {"errors"},
    "own_code": {"errors"},
    "units": {"errors"},
    "rng": {"errors", "units"},
    "request_table": _BASE,
    "request_outcomes": _BASE,
    "engine": _ENGINE,
    "profiles": _BASE | {"engine.costs", "engine.tiers"},
    "workloads": _ENGINE,
    "tasks": _TASKS,
    "fleet": _FLEET,
    "backends": _BACKENDS,
    "env": _ENV,
    "graders": _AGENTS,
    "gym_envs": _AGENTS | {"graders"} | _WIRE,
    "agents": _AGENTS,
    "evaluation": _EVALUATION,
    "pilot": _PLANNING,
    "planning": _PLANNING | {"fleet"},
    "leaderboard": _PLANNING,
    "training": _PLANNING | {"gym_envs", "fleet"},
    "models": _BASE | {"engine.costs", "engine.knob", "engine.knobs", "engine.tiers"},
    "client": _BASE | {"models"},
    "server": _SERVER,
    "cli": _CLI,
    "__init__": _CLI,
}
"""Module or folder of the library -> what it may import from the library besides itself."""

DOORS: dict[str, tuple[str, ...]] = {
    "aiconfigurator_core": ("llmserve_env/profiles/",),
    "fastapi": ("llmserve_env/server/",),
    "fastmcp": ("llmserve_env/server/mcp_tools.py",),
    "gymnasium": (
        "llmserve_env/env/",
        "llmserve_env/fleet/gym_env.py",
        "llmserve_env/fleet/registration.py",
        "llmserve_env/gym_envs/",
        "llmserve_env/tasks/registration.py",
        "llmserve_env/training/",
    ),
    "joblib": (),
    "numba": ("llmserve_env/engine/kernels/",),
    "onnxruntime": ("llmserve_env/agents/own/onnx.py",),
    "openai": ("llmserve_env/agents/llm.py", "llmserve_env/backends/real/"),
    "openenv": ("llmserve_env/models.py", "llmserve_env/client.py", "llmserve_env/server/"),
    "optuna": ("llmserve_env/planning/tuning/",),
    "pandas": ("llmserve_env/profiles/aiconfigurator.py",),
    "pickle": (),
    "psycopg": ("llmserve_env/server/",),
    "pyarrow": (
        "llmserve_env/workloads/traces/",
        "llmserve_env/profiles/",
        "llmserve_env/backends/table/",
        "llmserve_env/server/episode_memory.py",
    ),
    "ray": (
        "llmserve_env/evaluation/ray_runner.py",
        "llmserve_env/training/rllib.py",
    ),
    "scipy": (
        "llmserve_env/evaluation/statistics.py",
        "llmserve_env/fleet/fluid/calibration.py",
        "llmserve_env/training/fleet_episodes.py",
        "llmserve_env/profiles/",
        "llmserve_env/backends/table/lookup.py",
        "llmserve_env/workloads/traces/",
        "llmserve_env/workloads/distributions.py",
    ),
    "stable_baselines3": ("llmserve_env/training/",),
    "starlette": ("llmserve_env/server/",),
    # The worker's module is imported by vLLM, in a process that has torch.
    "torch": ("llmserve_env/training/", "llmserve_env/backends/real/plugin/llmserve_steering/worker.py"),
    "uvicorn": ("llmserve_env/server/",),
}
"""Heavy or dangerous package -> the only files (or folders, ending in a slash) that may import it."""

PRINTING = ("llmserve_env/cli/",)
DOCUMENTED = ("llmserve_env", "server", "tools", "benchmarks", "scripts")

# The brackets keep these patterns from matching this very file.
FORBIDDEN = re.compile(
    r"py[p]i\.org|python[h]osted|npm[j]s\.org|debi[a]n\.org|(?<![a-z.])/(?:work|farm|root)/|/opt/(?:wheel[s]|p[y]pi)"
    r"|\b(?:TO[D]O|FIX[M]E)\b"
)


def python_files(root: Path, *folders: str) -> list[Path]:
    """Every Python file below the given folders of `root`, those that exist."""
    return sorted(path for folder in folders for path in (root / folder).rglob("*.py"))


def imports(root: Path, path: Path) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of every import, at any depth, relative ones and literal `import_module` included."""
    package = path.relative_to(root).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                parents = package[: len(package) - level + 1] if level else ()
                base = ".".join([*parents, *([module] if module else [])])
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def layer_of(root: Path, path: Path) -> str:
    """The key of `LAYERS` that a library file falls under."""
    return path.relative_to(root / PACKAGE).with_suffix("").parts[0]


def _within(target: str, allowed: set[str]) -> bool:
    return any(target == name or target.startswith(f"{name}.") for name in allowed)


def _library_target(name: str) -> str:
    """What an imported `llmserve_env.…` name is counted as; a name the root package re-exports counts as `__init__`."""
    target = name.removeprefix(PACKAGE).removeprefix(".")
    return target if target.split(".")[0] in LAYERS else "__init__"


def wrong_direction(root: Path) -> list[str]:
    """Imports against the direction of `LAYERS`, and library modules that `LAYERS` does not know."""
    findings = []
    for path in python_files(root, PACKAGE):
        where, layer = path.relative_to(root).as_posix(), layer_of(root, path)
        if layer not in LAYERS:
            findings.append(f"{where}:1 is in no layer; give {layer!r} its place in LAYERS")
            continue
        allowed = LAYERS[layer] | {layer}
        for line, name in imports(root, path):
            top = name.split(".")[0]
            outside = top == PACKAGE and not _within(_library_target(name), allowed)
            if outside or top in {"benchmarks", "scripts", "server", "tests", "tools"}:
                findings.append(f"{where}:{line} {layer} may not import {name}")
    return findings


def beyond_the_command_line(root: Path) -> list[str]:
    """Root scripts and modules of the root `server/` that import more than the library's commands and application."""
    allowed = (f"{PACKAGE}.cli.", f"{PACKAGE}.server.app.")
    return [
        f"{path.relative_to(root).as_posix()}:{line} imports {name}"
        for path in [*sorted(root.glob("*.py")), *python_files(root, "server")]
        for line, name in imports(root, path)
        if name.split(".")[0] in {PACKAGE, "server"} and not name.startswith(allowed)
    ]


def through_the_wall(root: Path, package: str) -> list[str]:
    """Imports of a heavy package anywhere but at its door."""
    return [
        f"{where}:{line} imports {name}"
        for path in python_files(root, PACKAGE)
        for where in [path.relative_to(root).as_posix()]
        for line, name in imports(root, path)
        if name.split(".")[0] == package and not where.startswith(DOORS[package])
    ]


def third_party(root: Path) -> set[str]:
    """Top-level names of everything imported by the library."""
    paths = python_files(root, PACKAGE)
    return {name.split(".")[0] for path in paths for _, name in imports(root, path)} - {PACKAGE}


def too_long(root: Path, files: list[Path], max_lines: int = MAX_LINES) -> list[str]:
    """Python files with more lines than one subject needs."""
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files if path.suffix == ".py"}
    return [f"{path.relative_to(root).as_posix()}:{n} lines" for path, n in lengths.items() if n > max_lines]


def prints(root: Path) -> list[str]:
    """Calls of `print` in code that is not a command."""
    return [
        f"{where}:{node.lineno} prints"
        for path in python_files(root, PACKAGE)
        for where in [path.relative_to(root).as_posix()]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
        if not where.startswith(PRINTING)
    ]


def undocumented(root: Path) -> list[str]:
    """Modules without a docstring."""
    return [
        f"{path.relative_to(root).as_posix()}:1 has no docstring"
        for path in [*sorted(root.glob("*.py")), *python_files(root, *DOCUMENTED)]
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]


def forbidden_text(root: Path, files: list[Path]) -> list[str]:
    """Registry hosts, paths of one machine and unfinished work, in any text file."""
    findings = []
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # a binary file holds no text to check
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if found := FORBIDDEN.search(line):
                findings.append(f"{path.relative_to(root).as_posix()}:{number} contains {found.group()!r}")
    return findings
