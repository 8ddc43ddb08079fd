"""What shapes the machine code of the kernels, as one digest.

Kernels freeze the constants and functions of every module they import, so the digest covers the sources of all modules
of the package that can be reached by imports from a module with an entry point, and what compiles them.
"""

from __future__ import annotations

import ast
import hashlib
import platform
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numba
import numpy as np
from numba import config
from numba.core.codegen import ll as llvm

PACKAGE = "llmserve_env"
ENTRY_POINT = "\n@entry_point\n"
"""Text that occurs in the source of every module with an entry point."""


def module_path(root: Path, module: str) -> Path | None:
    """The source of a module of the package whose parent folder is `root`; None for other modules."""
    base = root.joinpath(*module.split("."))
    candidates = (base.with_suffix(".py"), base / "__init__.py")
    return next((path for path in candidates if module.split(".")[0] == PACKAGE and path.is_file()), None)


def imported_modules(source: str) -> Iterator[str]:
    """Every dotted name that the source imports; `from a import b` yields `a` and `a.b`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def kernel_sources(root: Path) -> dict[str, str]:
    """Sources, by path below `root`, of the modules with entry points and of all that they import from the package."""
    pending = [path for path in (root / PACKAGE).rglob("*.py") if ENTRY_POINT in path.read_text(encoding="utf-8")]
    sources: dict[str, str] = {}
    while pending:
        path = pending.pop()
        name = path.relative_to(root).as_posix()
        if name in sources:
            continue
        sources[name] = path.read_text(encoding="utf-8")
        pending += [p for module in imported_modules(sources[name]) if (p := module_path(root, module)) is not None]
    return dict(sorted(sources.items()))


def toolchain() -> dict[str, str]:
    """Versions and settings that shape the machine code besides the sources."""
    return {
        "python": platform.python_version(),
        "numba": numba.__version__,
        "llvmlite": version("llvmlite"),
        "numpy": np.__version__,
        "cpu": config.CPU_NAME or llvm.get_host_cpu_name(),
        "cpu_features": config.CPU_FEATURES or "",
        "optimisation": str(config.OPT),
        "bounds_checks": str(config.BOUNDSCHECK),
    }


def digest(sources: dict[str, str], tools: dict[str, str]) -> str:
    """A short digest of names and contents."""
    parts = [*sources.items(), *sorted(tools.items())]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@cache
def cache_key() -> str:
    """The digest of this installation on this machine."""
    return digest(kernel_sources(Path(__file__).parents[3]), toolchain())
