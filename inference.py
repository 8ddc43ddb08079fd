"""Let a language model play every task: see `python inference.py --help`."""

from llmserve_env.cli.inference import main

if __name__ == "__main__":
    raise SystemExit(main())
