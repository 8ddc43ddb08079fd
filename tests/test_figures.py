"""Figures in the documents name the command that printed them and can be reproduced."""

from __future__ import annotations

import sys

from tools.figures import as_block, commands_of, documents, refreshed


def test_every_shown_output_has_a_command_that_exists() -> None:
    commands = [command for path in documents() for command in commands_of(path.read_text("utf-8"))]
    assert commands
    assert all(command.split()[0] in ("python", "llmserve") for command in commands)


def test_no_shown_output_is_empty() -> None:
    for path in documents():
        assert "-->\n<!-- end -->" not in path.read_text("utf-8"), f"{path.name} has an empty block: run `make figures`"


def test_a_block_is_replaced_by_what_its_command_prints() -> None:
    command = f"{sys.executable} -c 'print(6 * 7)'"
    text = f"a\n<!-- output: {command} -->\nold\n<!-- end -->\nb\n"
    assert refreshed(text, []) == f"a\n<!-- output: {command} -->\n```text\n42\n```\n<!-- end -->\nb\n"


def test_a_command_that_fails_leaves_its_block_and_is_named() -> None:
    command, failed = f"{sys.executable} -c 'raise SystemExit(1)'", list[str]()
    text = f"<!-- output: {command} -->\nold\n<!-- end -->\n"
    assert refreshed(text, failed) == text
    assert failed == [command]


def test_markdown_is_shown_as_markdown() -> None:
    assert as_block("| a |\n") == "| a |\n"
    assert as_block("plain\n") == "```text\nplain\n```\n"
