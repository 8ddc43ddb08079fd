"""Run the demo notebook from top to bottom and keep its outputs.

    python -m tools.run_notebook [NOTEBOOK] [--steps 50000] [--url http://localhost:7860]

It runs in an empty folder, so it cannot lean on a checkout; with `--url` it plays on that server instead of its own.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "InferenceGym_Demo.ipynb"
TIMEOUT_S = 1800


def executed(path: Path, steps: int, url: str | None = None) -> Any:
    """The notebook after a run, with its outputs and without what depends on the machine."""
    notebook = nbformat.read(path, as_version=4)
    os.environ["LLMSERVE_DEMO_STEPS"] = str(steps)
    os.environ.pop("LLMSERVE_URL", None)
    if url is not None:
        os.environ["LLMSERVE_URL"] = url
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=TIMEOUT_S, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            # Progress and log lines go to stderr; what a reader should see is printed.
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    return notebook


def main(argv: Sequence[str] | None = None) -> int:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", nargs="?", type=Path, default=NOTEBOOK)
    parser.add_argument("--steps", type=int, default=50_000, help="environment steps of the training (default: 50000)")
    parser.add_argument("--url", help="a server to play on (default: the notebook starts its own)")
    args = parser.parse_args(argv)
    nbformat.write(executed(args.notebook, args.steps, args.url), args.notebook)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
