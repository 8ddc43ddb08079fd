"""Commands that must work as written, and files that must be where they are looked for."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from llmserve_env.agents.policy import GENERALIST
from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.cli import evaluate, inference, train
from llmserve_env.cli.main import parser
from llmserve_env.server.settings import Settings
from llmserve_env.tasks.catalog import BENCHMARK
from tests.mission.asked import asked
from tools.build_docs import rebuilt
from tools.pre_submission_check import arguments as check_arguments

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def parsed(program: object, command: str) -> argparse.Namespace:
    """The arguments of a root script, read by its own parser."""
    own = argparse.ArgumentParser()
    program.add_arguments(own)  # type: ignore[attr-defined]
    return own.parse_args(shlex.split(command)[2:])


@asked("`uvicorn server.app:app --host 0.0.0.0 --port 7860`", "`server/app.py` forwards to the package's server")
def test_the_server_is_where_uvicorn_looks_for_it() -> None:
    program = "from server.app import app; print(callable(app))"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "True"


@asked("`LLMSERVE_MODE=sim|real` with `LLMSERVE_REAL_PROVIDER=openai`", "these variables, and mode `table`")
def test_the_mode_and_the_real_engine_are_chosen_by_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMSERVE_MODE", "real")
    monkeypatch.setenv("LLMSERVE_REAL_PROVIDER", "openai")
    monkeypatch.setenv("LLMSERVE_REAL_MODEL", "gpt-4.1-mini")
    limits = ("MAX_REQUESTS_PER_STEP", "MAX_PROMPT_TOKENS", "MAX_COMPLETION_TOKENS")
    for name in limits:
        monkeypatch.setenv(f"LLMSERVE_REAL_{name}", "7")
    real = RealSettings()
    assert Settings().mode == "real"
    assert (real.provider, real.model) == ("openai", "gpt-4.1-mini")
    assert [getattr(real, name.lower()) for name in limits] == [7, 7, 7]


@asked("`openenv validate` · `pytest -q`", "both; `openenv.yaml` is checked by OpenEnv's own validator in CI")
def test_the_manifest_names_the_tasks_and_their_graders() -> None:
    manifest = yaml.safe_load((ROOT / "openenv.yaml").read_text(encoding="utf-8"))
    assert [task["id"] for task in manifest["tasks"]] == list(BENCHMARK)
    assert manifest["app"] == "server.app:app"


@asked("`python train.py --task adversarial_multitenant --steps 120000 --seed 0`", "as written")
def test_train_takes_the_command_as_written() -> None:
    found = parsed(train, "python train.py --task adversarial_multitenant --steps 120000 --seed 0")
    assert (found.task, found.steps, found.seed) == ("adversarial_multitenant", 120_000, 0)


@asked("`python evaluate.py --agent ppo --task all --episodes 20`", "as written")
def test_evaluate_takes_the_command_as_written() -> None:
    found = parsed(evaluate, "python evaluate.py --agent ppo --task all --episodes 20")
    assert (found.agent, found.task, found.episodes) == (["ppo"], "all", 20)


@asked("`python -m server.baseline_inference --mode deterministic`", "as written: a JSON report with every task")
def test_the_deterministic_baseline_prints_a_report() -> None:
    command = [sys.executable, "-m", "server.baseline_inference", "--mode", "deterministic"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(json.loads(ran.stdout)["tasks"]) == set(BENCHMARK)


@asked(
    "`… --mode openai --runtime in-process --model gpt-4.1-mini [--output artifacts/baseline_openai.json]`",
    "as written; without a key the error names the variable",
)
def test_the_openai_baseline_asks_for_its_key() -> None:
    words = "--mode openai --runtime in-process --model gpt-4.1-mini --output artifacts/baseline_openai.json"
    command = [sys.executable, "-m", "server.baseline_inference", *words.split()]
    keys = ("OPENAI_API_KEY", "HF_TOKEN")
    variables = {name: value for name, value in os.environ.items() if name not in keys}
    ran = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert (ran.returncode != 0, "OPENAI_API_KEY" in ran.stderr) == (True, True)


@asked("`… --runtime http --base-url http://localhost:7860`", "as written")
def test_the_baseline_can_be_played_on_a_server() -> None:
    found = parser().parse_args(["baseline", "--runtime", "http", "--base-url", "http://localhost:7860"])
    assert (found.runtime, found.base_url) == ("http", "http://localhost:7860")


@asked("`docker build -t llmserve-env .`", "a Dockerfile of two stages for a CPU, port 7860, with the weights")
def test_the_dockerfile_has_two_stages_and_copies_the_package_with_its_weights() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert len(re.findall(r"^FROM ", text, re.MULTILINE)) == 2
    assert "7860" in text and "llmserve_env" in text
    assert (ROOT / "docker-compose.yml").is_file()


@asked("`python scripts/pre_submission_check.py --skip-docker | --space-url URL", "as written")
def test_the_submission_check_takes_its_options() -> None:
    model = "--run-openai-baseline --baseline-runtime in-process --model gpt-4.1-mini"
    for words in ("--skip-docker", "--space-url http://localhost:1", model):
        assert check_arguments(words.split()) is not None
    assert (ROOT / "scripts" / "pre_submission_check.py").is_file()


@asked("`uv sync` (after `uv lock`)", "`make uv-lock` writes `uv.lock`; it is not committed")
def test_make_writes_a_lock_for_uv_on_request() -> None:
    assert re.search(r"^uv-lock:.*##", MAKEFILE, re.MULTILINE)
    ignored = subprocess.run(["git", "check-ignore", "uv.lock"], cwd=ROOT, capture_output=True, text=True)
    assert ignored.stdout.strip() == "uv.lock"


@asked(
    "Weights for all tasks tracked under `weights/`",
    "`llmserve_env/weights`, in the wheel and in the image",
    "weights outside the package would not be in an installed copy",
)
def test_weights_of_every_task_are_tracked() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "llmserve_env/weights"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert all(f"weights/{name}/ppo.safetensors" in tracked for name in (*BENCHMARK, GENERALIST))


@asked("README front matter: title LLMServeEnv, sdk docker, app_port 7860, tags openenv", "the same")
def test_the_readme_has_the_front_matter_of_a_space() -> None:
    front = yaml.safe_load(README.split("---")[1])
    assert (front["title"], front["sdk"], front["app_port"]) == ("LLMServeEnv", "docker", 7860)
    assert front["tags"] == ["openenv", "reinforcement-learning", "llm-serving"]


@asked("Submission script of the hackathon this came from: `inference.py` in the root", "the same variables and lines")
def test_the_submission_script_prints_start_steps_and_end() -> None:
    command = [sys.executable, "inference.py", "--agent", "heuristic", "--task", "static_workload"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("[START]") and lines[-1].startswith("[END]")
    assert sum(line.startswith("[STEP]") for line in lines) == 200
    assert parsed(inference, "python inference.py").time_limit_s <= 20 * 60
    said = (ROOT / "llmserve_env" / "cli" / "inference.py").read_text(encoding="utf-8")
    assert all(name in said for name in ("API_BASE_URL", "MODEL_NAME", "HF_TOKEN"))


@asked("`ENVIRONMENT.md`: the full technical specification.", "one page with the generated tables and the formulas")
def test_the_specification_is_one_page() -> None:
    text = (ROOT / "ENVIRONMENT.md").read_text(encoding="utf-8")
    assert rebuilt(text) == text, "run `make docs`"
    for part in ("page-environment", "page-metrics", "endpoints"):
        assert f"<!-- generated: {part} -->" in text
    assert all(
        word in text for word in ("`batch_cap`", "`queue_depth`", "`throughput_tps`", "POST /grader", "α·throughput")
    )
