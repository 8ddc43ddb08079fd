"""Relative links in the documents resolve, and the files that the recipes name exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
FILE = re.compile(r"`([\w.<>-]+(?:/[\w.<>-]*)+|[\w-]+\.(?:md|toml|yaml))`")
PLACEHOLDER = re.compile(r"<\w+>")
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def broken_links(page: Path) -> list[str]:
    """Targets of relative links on a Markdown page that do not exist."""
    prose = CODE.sub("", page.read_text(encoding="utf-8"))
    return [target for target in LINK.findall(prose) if not (page.parent / target).exists()]


def test_relative_links_resolve() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert pages
    assert {str(page.relative_to(ROOT)): broken for page in pages if (broken := broken_links(page))} == {}


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "[here](page.md#part) [gone](gone.md) [web](https://example.com) [top](#top) `f[q](C)`", encoding="utf-8"
    )
    assert broken_links(page) == ["gone.md"]


def missing_files(text: str) -> list[str]:
    """Files and folders named in code spans that do not exist; `<task_id>` and the like stand for any name."""
    named = sorted(set(FILE.findall(text)))
    return [name for name in named if not any(ROOT.glob(PLACEHOLDER.sub("*", name).rstrip("/")))]


def test_the_files_that_recipes_name_exist() -> None:
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert len(set(FILE.findall(text))) > 30
    assert missing_files(text) == []


def test_a_missing_file_is_found() -> None:
    kept = "`README.md` `tests/` `llmserve_env/tasks/data/<task_id>.yaml` `llmserve task check <task_id>`"
    assert missing_files(f"{kept} `docs/gone.md` `gone.yaml`") == ["docs/gone.md", "gone.yaml"]
