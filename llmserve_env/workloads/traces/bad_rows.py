"""Rows of a log that could not be used; all are counted, and the first are kept with line number and reason."""

from __future__ import annotations

from dataclasses import dataclass, field

from llmserve_env.errors import TraceFormatError


@dataclass(slots=True)
class BadRows:
    """Reasons for the rows left out; with `strict`, the first bad row refuses the whole log."""

    source: str
    strict: bool = False
    num_kept: int = 10
    num_lines: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int, reason: str, num_lines: int = 1) -> None:
        """Leave out `num_lines` lines, of which `line` is the first."""
        if self.strict:
            raise TraceFormatError(f"{self.source}:{line}: {reason}")
        self.num_lines += num_lines
        if len(self.first) < self.num_kept:
            self.first.append((line, reason))

    def describe(self) -> str:
        """One line per kept reason, in the format of a compiler message."""
        shown = [f"{self.source}:{line}: {reason}" for line, reason in self.first]
        more = self.num_lines - len(shown)
        return "\n".join([*shown, *([f"... and {more} more lines left out"] if more > 0 else [])])
