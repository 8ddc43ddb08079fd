"""OpenEnv's own validator: the manifest, the runtime graders against a real server, and the checks by URL."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient
from openenv.cli._validation import validate_running_environment
from openenv.validation.providers import ExecResult
from openenv.validation.runner import run_validation
from openenv.validation.types import CheckStatus, Level, ProviderCapability

import llmserve_env.client
from llmserve_env.server.llmserve_environment import NAME
from llmserve_env.tasks.catalog import BENCHMARK, load_task
from llmserve_env.version import PACKAGE_VERSION
from tests.server.running import RunningServer

ROOT = Path(__file__).resolve().parent.parent.parent
RUNTIME_CHECKS = {
    "runtime.startup",
    "runtime.reward_well_formed",
    "runtime.observation_schema",
    "runtime.state_contract",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """What OpenEnv looks at, without the caches of a working tree."""
    for name in ("openenv.yaml", "README.md", "Dockerfile"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, tmp_path / name)
    for folder in ("validation", "server"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


class LocalSubject:
    """A server of this machine in the place of a container."""

    def __init__(self) -> None:
        self._server = RunningServer("memory")
        self.base_url = self._server.url

    def inspect(self) -> dict[str, Any]:
        return {}

    def logs(self, max_bytes: int = 65536) -> str:
        return ""

    def exec(self, argv: list[str], timeout_s: float) -> ExecResult:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
        return ExecResult(done.returncode, done.stdout, done.stderr, 0.0)

    def stop(self) -> None:
        self._server.stop()


class LocalProvider:
    """Builds nothing: the code is installed here."""

    name = "local"
    capabilities = frozenset({ProviderCapability.IMAGE_BUILD})
    supported_network_modes = frozenset({"public"})

    def build(self, root: Path, execution: Any) -> str:
        return "sha256:" + "0" * 64

    def start(self, spec: Any) -> LocalSubject:
        return LocalSubject()


def test_the_manifest_passes(package: Path) -> None:
    report = run_validation(package, max_level=Level.STATIC, skip_build=True)
    assert {check.check_id: check.status for check in report.results} == {"static.manifest": CheckStatus.PASS}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the validator's own code
def test_the_runtime_graders_pass(package: Path) -> None:
    report = run_validation(package, max_level=Level.RUNTIME, provider=LocalProvider())
    found = {check.check_id: check.status for check in report.results}
    assert {name: found[name] for name in RUNTIME_CHECKS} == dict.fromkeys(RUNTIME_CHECKS, CheckStatus.PASS)
    assert [check.evidence for check in report.results if check.status == CheckStatus.FAIL] == []


def test_a_running_server_passes_by_url(running: RunningServer) -> None:
    report = validate_running_environment(running.url, timeout_s=30.0)
    assert report["passed"], report


def test_the_manifest_says_what_the_code_says() -> None:
    manifest = yaml.safe_load((ROOT / "openenv.yaml").read_text(encoding="utf-8"))
    assert manifest["version"] == PACKAGE_VERSION
    tasks = [load_task(name) for name in BENCHMARK]
    assert [(task["id"], task["name"], task["difficulty"]) for task in manifest["tasks"]] == [
        (task.id, task.name, task.difficulty) for task in tasks
    ]
    assert manifest["validation"]["capabilities"]["declared_task_count"] == {"train": len(BENCHMARK)}
    assert hasattr(llmserve_env.client, "LlmserveEnv")
    module, name = manifest["tasks"][0]["grader"].split(":")
    program = f"from {module} import {name}"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("route", ["tasks", "num_tasks"])
def test_an_unknown_split_is_the_mistake_of_the_caller(client: TestClient, route: str) -> None:
    answer = client.post(f"/{NAME}/{route}", json={"split": ""})
    assert answer.status_code == 422
    assert "split must be 'train'" in answer.text
