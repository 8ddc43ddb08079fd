"""Generated tables in the README and the documents match the code."""

from __future__ import annotations

from tools.build_docs import BLOCK, BLOCKS, documents, rebuilt

DOCUMENTS = documents()
# tests/mission looks after the specification, which is made of the other pages.
PAGES = [path for path in DOCUMENTS if path.name != "ENVIRONMENT.md"]


def test_generated_tables_are_up_to_date() -> None:
    stale = [path.name for path in PAGES if rebuilt(path.read_text("utf-8")) != path.read_text("utf-8")]
    assert stale == [], "run `make docs`"


def test_every_block_is_used_somewhere() -> None:
    used = {match["name"] for path in DOCUMENTS for match in BLOCK.finditer(path.read_text("utf-8"))}
    assert set(BLOCKS) <= used


def test_a_changed_table_is_noticed() -> None:
    text = "a\n<!-- generated: knobs -->\nold\n<!-- end -->\nb\n"
    assert "`batch_cap`" in rebuilt(text)
    assert rebuilt(rebuilt(text)) == rebuilt(text)
