"""The files of the pages: small modules, loaded together, from this server alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llmserve_env.server.routes.pages import STATIC, STATIC_PATH
from tests.architecture import MAX_LINES

IMPORT = re.compile(r'^(?:import|export) .*from "\./(\w+\.js)";$', re.MULTILINE)
PRELOAD = re.compile(rf'<link rel="modulepreload" href="{STATIC_PATH}/(\w+\.js)">')
OTHER_HOST = re.compile(r"""(?:src|href|url|from|fetch|import)[ =:("']{1,3}(?:https?:)?//""")
SOURCES = sorted(path for path in STATIC.iterdir() if path.suffix in (".js", ".css", ".html"))


def imported_by(name: str) -> set[str]:
    """Every module that a module needs, directly or not."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for module in IMPORT.findall((STATIC / waiting.pop()).read_text(encoding="utf-8")):
            if module not in found:
                found.add(module)
                waiting.append(module)
    return found


def test_the_page_loads_all_its_modules_at_once() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert sorted(PRELOAD.findall(page)) == sorted(imported_by("main.js"))


def test_every_module_belongs_to_a_page() -> None:
    used = imported_by("main.js") | imported_by("reference.js") | {"main.js", "reference.js"}
    assert used == {path.name for path in SOURCES if path.suffix == ".js"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_file_is_short_and_names_no_other_host(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    assert OTHER_HOST.findall(text) == []


def test_a_module_says_in_its_first_line_what_it_does() -> None:
    modules = [path for path in SOURCES if path.suffix == ".js"]
    first_lines = {path.name: path.read_text(encoding="utf-8").splitlines()[0] for path in modules}
    assert [name for name, line in first_lines.items() if not re.match(r"// .{20,}", line)] == []
