"""The demo notebook runs from top to bottom, on a tiny budget."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs the extra [dev]: pip install '.[dev]'")
nbclient = pytest.importorskip("nbclient", reason="needs the extra [dev]: pip install '.[dev]'")

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "InferenceGym_Demo.ipynb"


def texts(notebook: Any) -> str:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "\n".join(output.text for output in outputs if output.output_type == "stream")


# The kernel's own libraries warn about themselves.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_demo_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("stable_baselines3", reason="needs the extra [train]: pip install '.[train]'")
    monkeypatch.setenv("LLMSERVE_DEMO_STEPS", "2048")
    monkeypatch.delenv("LLMSERVE_URL", raising=False)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    printed = texts(notebook)
    assert "static_workload" in printed
    assert "validation score" in printed
    pictures = [
        o for c in notebook.cells if c.cell_type == "code" for o in c.outputs if "image/png" in o.get("data", {})
    ]
    assert len(pictures) == 1


def test_the_notebook_is_committed_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code")


def test_the_notebook_names_no_machine() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|Users|work|tmp)/", text)
