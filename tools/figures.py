"""Rerun the commands whose output is shown in README.md and docs/, and insert the new output.

    python -m tools.figures [DOCUMENT ...] [--list]

A block stands between `<!-- output: COMMAND -->` and `<!-- end -->`. Markdown is inserted as it is, other text in a
fence. If a command fails, because its inputs are missing or a bar is not met, its block stays unchanged. `make figures`
also runs the commands that write their own blocks and pictures: the benchmark's table and the picture of an episode.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"<!-- output: (?P<command>.+?) -->\n(?P<body>.*?)<!-- end -->", re.DOTALL)
MARKDOWN_STARTS = ("|", "#")


def documents() -> list[Path]:
    """The README and every page of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands_of(text: str) -> list[str]:
    """Commands whose output the document shows."""
    return [match["command"] for match in BLOCK.finditer(text)]


def output_of(command: str) -> str:
    """Output of the command, run with this interpreter's programs first on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    print(f"$ {command}", file=sys.stderr, flush=True)
    finished = subprocess.run(
        shlex.split(command), cwd=ROOT, env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, text=True, check=True
    )
    return finished.stdout


def as_block(output: str) -> str:
    """Output in the form in which a document shows it."""
    body = output.strip("\n") + "\n"
    return body if body.startswith(MARKDOWN_STARTS) else f"```text\n{body}```\n"


def refreshed(text: str, failed: list[str]) -> str:
    """The document with the output of every command renewed; commands that fail are added to the list."""

    def block(match: re.Match[str]) -> str:
        command = match["command"]
        try:
            return f"<!-- output: {command} -->\n{as_block(output_of(command))}<!-- end -->"
        except subprocess.CalledProcessError:
            failed.append(command)
            return match[0]

    return BLOCK.sub(block, text)


def main() -> int:
    """Refresh the named documents, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", nargs="*", type=Path, metavar="DOCUMENT", help="documents (default: all)")
    parser.add_argument("--list", action="store_true", help="only print the commands")
    arguments = parser.parse_args()
    failed: list[str] = []
    for path in arguments.documents or documents():
        text = path.read_text(encoding="utf-8")
        if arguments.list:
            for command in commands_of(text):
                print(f"{path.name}: {command}")
        else:
            path.write_text(refreshed(text, failed), encoding="utf-8")
    for command in failed:
        print(f"failed, so its block is unchanged: {command}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
