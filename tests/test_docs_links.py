"""Relative links in the documents resolve."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
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
