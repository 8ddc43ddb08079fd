"""Train policies: see `python train.py --help`."""

from llmserve_env.cli.train import main

if __name__ == "__main__":
    raise SystemExit(main())
