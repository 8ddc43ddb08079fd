"""The demo notebook runs from top to bottom, on a tiny budget."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "InferenceGym_Demo.ipynb"


def texts(notebook: nbformat.NotebookNode) -> str:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "\n".join(output.text for output in outputs if output.output_type == "stream")


# The kernel's own libraries warn about themselves.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_demo_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMSERVE_DEMO_STEPS", "2048")
    monkeypatch.delenv("LLMSERVE_URL", raising=False)
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    printed = texts(notebook)
    assert "static_workload" in printed
    assert "validation score" in printed
    pictures = [
        o for c in notebook.cells if c.cell_type == "code" for o in c.outputs if "image/png" in o.get("data", {})
    ]
    assert len(pictures) == 1


def test_the_notebook_is_committed_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code")
