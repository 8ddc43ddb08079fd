"""`python -m server.baseline_inference`: reference agents, or a language model, in process or over HTTP."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from llmserve_env.client import LLMServeEnv
from llmserve_env.errors import LLMServeError
from llmserve_env.evaluation.baseline import baseline_from_arguments
from llmserve_env.evaluation.baseline_options import add_baseline_arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Play, and print or write the report; a mistake of the user is a message and status 2."""
    parser = argparse.ArgumentParser("python -m server.baseline_inference", description=__doc__)
    add_baseline_arguments(parser)
    try:
        text = baseline_from_arguments(parser.parse_args(argv), LLMServeEnv.from_url)
    except LLMServeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if text is not None:
        print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
