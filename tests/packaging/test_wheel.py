"""The wheel is whole: installed elsewhere, without the checkout, it plays, evaluates, benchmarks and serves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = "llmserve_env"
START_TIMEOUT_S = 600.0
OUTSIDE = """
import importlib.util, json, sys
import llmserve_env, llmserve_env.server.app
from llmserve_env.agents.policy import policy_folder, weights_folder
from llmserve_env.server.routes.pages import STATIC
found = {"package": llmserve_env.__file__, "weights": str(policy_folder("static_workload")), "static": str(STATIC)}
found["training"] = str(weights_folder())
found["server"] = importlib.util.find_spec("server") is not None
print(json.dumps({**found, "path": sys.path}))
"""
NOTEBOOK = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
notebook.cells.append(nbformat.v4.new_code_cell("import llmserve_env; print('ran on', llmserve_env.__file__)"))
NotebookClient(notebook, timeout=1800).execute()
cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
print("".join(output.text for cell in cells for output in cell.outputs if output.get("name") == "stdout"))
"""
EPISODE = """
import gymnasium, llmserve_env
environment = gymnasium.make("LLMServe/static_workload-v2")
environment.reset(seed=0)
_, reward, *_ = environment.step(environment.action_space.sample())
print(float(reward))
"""

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Installation:
    """An environment that has the wheel and this environment's dependencies, and a folder to work in."""

    folder: Path

    @property
    def binaries(self) -> Path:
        return self.folder / "venv" / "bin"

    @property
    def variables(self) -> dict[str, str]:
        """This process's variables without those that would lead back to the checkout."""
        kept = {name: os.environ[name] for name in os.environ if not name.startswith(("PYTHON", "LLMSERVE", "COV_"))}
        return {
            **kept,
            "PATH": f"{self.binaries}:{os.environ['PATH']}",
            "LLMSERVE_STORE": "memory",
            "NUMBA_CACHE_DIR": str(self.folder / "kernels"),
            "LLMSERVE_DEMO_STEPS": "2048",
        }

    def run(self, *command: str) -> str:
        """What a command of the installation prints."""
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        done = subprocess.run(
            [str(self.binaries / command[0]), *command[1:]],
            cwd=elsewhere,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """The wheel in an environment of its own."""
    found = Installation(tmp_path_factory.mktemp("installation"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(found.folder / "venv")], check=True)
    python = str(found.binaries / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    # Python searches a folder that a .pth file names, but reads no .pth files in it: an editable install stays hidden.
    (site,) = (found.folder / "venv").glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"], encoding="utf-8")
    return found


def test_the_wheel_holds_all_that_the_package_reads(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(["git", "ls-files", PACKAGE], cwd=ROOT, capture_output=True, text=True, check=True)
    expected = {name for name in tracked.stdout.splitlines() if not name.endswith("curve.png")}
    assert expected | {f"{PACKAGE}/openenv.yaml", f"{PACKAGE}/server/static/own_agents.md"} <= names
    assert {name.split("/")[0].split("-")[0] for name in names} == {PACKAGE, "inferencegym", "openenv_llmserve_env"}


@contextmanager
def serving(installation: Installation) -> Iterator[httpx.Client]:
    """A client of the installed `server` command."""
    process = subprocess.Popen(
        [str(installation.binaries / "server"), "--port", "0"],
        cwd=installation.folder,
        env=installation.variables,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        line = next(line for line in process.stderr if "open http" in line)
        url = line.split("open ")[1].removesuffix("/web\n")
        with httpx.Client(base_url=url, timeout=START_TIMEOUT_S) as client:
            yield client
    finally:
        process.terminate()
        process.communicate()


def test_an_installed_wheel_needs_no_checkout(installation: Installation) -> None:
    """One test, because every part of it wants the same installation and the same compiled kernels."""
    found = json.loads(installation.run("python", "-c", OUTSIDE))
    assert not found["server"]
    assert str(ROOT) not in found["path"]
    assert all(found[name].startswith(str(installation.folder)) for name in ("package", "weights", "static"))
    assert found["training"] == "weights"
    assert -1.0 <= float(installation.run("python", "-c", EPISODE)) <= 1.0
    evaluation = installation.run("llmserve", "evaluate", "--agent", "ppo", "--task", "all", "--episodes", "1")
    assert "static_workload" in evaluation
    assert "ppo" in installation.run("llmserve", "benchmark", "--episodes", "1")
    pytest.importorskip("stable_baselines3", reason="the notebook trains: pip install '.[train]'")
    ran = installation.run("python", "-c", NOTEBOOK, str(ROOT / "notebooks" / "InferenceGym_Demo.ipynb"))
    assert "validation score" in ran
    assert f"ran on {installation.folder}" in ran


def test_an_installed_server_serves(installation: Installation) -> None:
    with serving(installation) as client:
        assert client.get("/health").json()["status"] == "healthy"
        assert client.post("/reset", json={"seed": 0}).json()["observation"]["task_id"] == "static_workload"
        assert client.post("/step", json={"action": {}}).json()["observation"]["step_index"] == 1
        assert client.get("/health").json()["ready"]
        assert "LLMServeEnv" in client.get("/web").text
        assert client.get("/web/static/main.js").status_code == 200
        assert "ppo" in client.get("/agents").text
