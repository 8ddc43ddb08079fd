"""Rewrite the generated results block of a document, between its markers."""

from __future__ import annotations

from pathlib import Path

from llmserve_env.errors import ConfigError

START = "<!-- benchmark:start (written by `llmserve benchmark`) -->"
END = "<!-- benchmark:end -->"


def rewrite_block(document: Path, block: str) -> bool:
    """Put the block between the markers; whether the document changed."""
    text = document.read_text(encoding="utf-8") if document.is_file() else ""
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ConfigError(f"{document} has no place for the table: add the two lines {START!r} and {END!r}")
    changed = f"{before}{START}\n{block}\n{END}{after}"
    if changed == text:
        return False
    document.write_text(changed, encoding="utf-8")
    return True
