"""`python -m server.baseline_inference`: the `llmserve baseline` command under the name users know."""

import sys

from llmserve_env.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main(["baseline", *sys.argv[1:]]))
