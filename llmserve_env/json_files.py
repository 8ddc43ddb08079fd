"""JSON from files that somebody else may have written; every defect is an error that names the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from llmserve_env.errors import LLMServeError

MAX_BYTES = 200_000_000


def read_json(path: Path, what: str, error_kind: type[LLMServeError]) -> Any:
    """The content of a file that should hold `what`; an error of this kind if it cannot be read as JSON.

    Besides bad syntax, these are text in another encoding, nesting deeper than the stack, and numbers of thousands of
    digits.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise error_kind(f"{path}: more than {MAX_BYTES // 10**6} MB are not read as {what}")
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise error_kind(f"{path}: cannot be read as {what}: nested too deeply") from error
    except (OSError, ValueError) as error:
        raise error_kind(f"{path}: cannot be read as {what}: {error}") from error
