"""The demo notebook: committed with its outputs, and able to run alone or against a server, on a tiny budget."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbclient", reason="needs the extra [dev]: pip install '.[dev]'")

import nbformat

from tests.server.running import RunningServer
from tools.run_notebook import NOTEBOOK, executed

TINY_STEPS = 2048


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(notebook: Any) -> str:
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    return "\n".join(output.text for output in outputs if output.output_type == "stream")


def pictures(notebook: Any) -> list[Any]:
    return [o for cell in code_cells(notebook) for o in cell.outputs if "image/png" in o.get("data", {})]


# The kernel's own libraries warn about themselves.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("on_a_server", [False, True])
def test_the_demo_runs_from_top_to_bottom(on_a_server: bool, tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="needs the extra [train]: pip install '.[train]'")
    if on_a_server:
        with RunningServer(f"sqlite:///{tmp_path / 'sessions.db'}") as server:
            notebook = executed(NOTEBOOK, TINY_STEPS, server.url)
    else:
        notebook = executed(NOTEBOOK, TINY_STEPS)
    text = printed(notebook)
    assert "static_workload" in text
    assert "MyAgent" in text
    assert "validation score" in text
    assert len(pictures(notebook)) == 1


def test_the_notebook_is_committed_with_its_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert "validation score" in printed(notebook)
    assert len(pictures(notebook)) == 1
    silent = [cell for cell in code_cells(notebook) if "print(" in cell.source and not cell.outputs]
    assert silent == []
    assert not [o for cell in code_cells(notebook) for o in cell.outputs if o.output_type == "error"]


def test_the_notebook_needs_no_checkout() -> None:
    source = "\n".join(cell.source for cell in code_cells(nbformat.read(NOTEBOOK, as_version=4)))
    assert "server.app:app" not in source
    assert "llmserve_env.server.app" in source


def test_the_notebook_names_no_machine() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|Users|work|tmp)/", text)
