"""Evaluate agents: see `python evaluate.py --help`."""

from llmserve_env.cli.evaluate import main

if __name__ == "__main__":
    raise SystemExit(main())
