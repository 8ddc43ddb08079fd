"""The README's Python runs as printed, and its commands exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from llmserve_env.evaluation.seeds import REPORTED_SEEDS
from tests.server.running import RunningServer

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [(language, text) for language, text in BLOCK.findall(README)]
NEEDS_SERVER = "from_url"


def local_python() -> list[str]:
    """Python blocks that need no server, each with the blocks before it, because later ones use earlier names."""
    blocks = [text for language, text in BLOCKS if language == "python" and NEEDS_SERVER not in text]
    return ["\n".join(blocks[: i + 1]) for i in range(len(blocks))]


def test_the_readme_has_examples() -> None:
    assert local_python()


def test_the_last_python_example_runs_after_those_before_it() -> None:
    result = subprocess.run([sys.executable, "-c", local_python()[-1]], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_the_http_example_runs_against_a_server(tmp_path: Path) -> None:
    example = next(text for language, text in BLOCKS if language == "python" and NEEDS_SERVER in text)
    with RunningServer(store=f"sqlite:///{tmp_path / 'sessions.db'}") as server:
        program = example.replace("http://localhost:7860", server.url)
        result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert 0.0 <= float(result.stdout) <= 1.0


def commands() -> list[str]:
    """Lines of the shell blocks, without their comments."""
    lines = "\n".join(text for language, text in BLOCKS if language == "bash").splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.strip() and not line.startswith("#")]


def test_the_training_command_is_that_of_the_shipped_policy_and_names_its_score() -> None:
    line = next(line for line in README.splitlines() if line.startswith("python train.py"))
    command, _, said = line.partition("#")
    task = re.search(r"--task (\w+)", command)
    assert task is not None
    card = json.loads((ROOT / "llmserve_env" / "weights" / task[1] / "ppo.json").read_text(encoding="utf-8"))
    assert command.strip() == card["command"]
    assert said.split()[-1] == str(card["score"]["mean"])


def test_commands_evaluate_on_the_seeds_of_the_table_by_default() -> None:
    assert f"over seeds {REPORTED_SEEDS.start}..{REPORTED_SEEDS.stop - 1}; `llmserve benchmark --episodes 20`" in README


@pytest.mark.parametrize("command", [c for c in commands() if c.startswith("make ")])
def test_make_targets_exist(command: str) -> None:
    subprocess.run(["make", "--dry-run", *command.split()[1:]], cwd=ROOT, capture_output=True, check=True)


@pytest.mark.parametrize("command", [c for c in commands() if re.match(r"(\w+=\S+ )*(python|llmserve) ", c)])
def test_programs_know_their_options(command: str) -> None:
    """`--help` of the program and subcommand lists every option the README gives it."""
    words = [word for word in command.split() if not re.fullmatch(r"[A-Z_]+=\S+", word)]
    start = 3 if words[:2] == ["python", "-m"] else 2 if words[0] == "python" else 1
    program = (
        [sys.executable, *words[1:start]] if words[0] == "python" else [sys.executable, "-m", "llmserve_env.cli.main"]
    )
    sub = []
    for word in words[start:]:
        if not re.fullmatch(r"[a-z]+", word):
            break
        sub.append(word)
    shown = subprocess.run([*program, *sub, "--help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for option in (word for word in words if word.startswith("--")):
        assert option.split("=")[0] in shown
