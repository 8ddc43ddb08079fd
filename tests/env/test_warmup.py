"""Compiling ahead of the first step."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from llmserve_env.engine.kernels.compilation import JIT_IS_OFF
from llmserve_env.env import warmup

ROOT = Path(__file__).resolve().parents[2]
needs_compiler = pytest.mark.skipif(JIT_IS_OFF, reason="nothing is compiled with the JIT off")

STEP = """
from llmserve_env.engine.kernels.compilation import compiled_kernels_reported
from llmserve_env.gym_envs.single import LLMServeGymEnv
from llmserve_env.gym_envs.vector import LLMServeVectorEnv

compiled = []
with compiled_kernels_reported(compiled.append):
    for env in (LLMServeGymEnv("static_workload"), LLMServeVectorEnv("static_workload", num_envs=2)):
        env.reset(seed=1)
        env.step(env.action_space.sample())
assert compiled == [], compiled
"""


def run(arguments: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)


def fail(part: str) -> Sequence[str]:
    return (sys.executable, "-c", "raise SystemExit('no room on the disk')")


def do_nothing(part: str) -> Sequence[str]:
    return (sys.executable, "-c", "")


def is_cold() -> bool:
    return False


@needs_compiler
def test_after_warming_up_nothing_is_left_to_compile() -> None:
    warmup.warm_up(show_progress=False)
    assert warmup.is_warm()
    result = run(["-c", STEP])
    assert (result.returncode, result.stderr) == (0, "")


@needs_compiler
def test_warming_up_again_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    warmup.warm_up(show_progress=False)
    monkeypatch.setattr(warmup, "child_command", fail)
    warmup.warm_up()


@needs_compiler
def test_a_failing_child_is_reported_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "is_warm", is_cold)
    monkeypatch.setattr(warmup, "child_command", fail)
    with pytest.raises(RuntimeError, match=r"(?s)kernels \(engine\) failed:.*no room on the disk"):
        warmup.warm_up(show_progress=False)


@needs_compiler
def test_a_cold_start_says_what_takes_so_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warmup, "is_warm", is_cold)
    monkeypatch.setattr(warmup, "child_command", do_nothing)
    warmup.warm_up()
    first_line, bar = capsys.readouterr().err.split("\n", 1)
    assert first_line == "compiling the simulator's kernels, once per version and machine"
    assert "0/" in bar and "kernel" in bar


@needs_compiler
def test_another_cache_folder_is_cold(tmp_path: Path) -> None:
    command = "from llmserve_env.env.warmup import is_warm; raise SystemExit(is_warm())"
    assert run(["-c", command], NUMBA_CACHE_DIR=str(tmp_path)).returncode == 0


@needs_compiler
def test_other_settings_of_the_compiler_have_another_cache(tmp_path: Path) -> None:
    command = "from llmserve_env.engine.kernels.compilation import cache_folder; print(cache_folder().name)"
    assert run(["-c", command]).stdout != run(["-c", command], NUMBA_BOUNDSCHECK="1").stdout


def test_a_cache_that_cannot_be_written_is_left_to_the_first_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a folder cannot be made below a file")
    command = "from llmserve_env.env.warmup import warm_up; warm_up()"
    result = run(["-c", command], NUMBA_CACHE_DIR=str(tmp_path / "file" / "cache"))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_with_the_jit_off_there_is_nothing_to_do(tmp_path: Path) -> None:
    command = "from llmserve_env.env.warmup import is_warm, warm_up; warm_up(); raise SystemExit(not is_warm())"
    result = run(["-c", command], NUMBA_DISABLE_JIT="1", NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert (result.returncode, result.stderr) == (0, "")
    assert not (tmp_path / "cache").exists()
