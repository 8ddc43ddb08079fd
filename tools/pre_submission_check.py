"""Run the submission checks: `python scripts/pre_submission_check.py [--skip-docker] [--space-url URL]`.

Runs the tests, OpenEnv's validator on the package and on a server started for it, and the endpoint checks. If a
Docker engine is available, the image is built, started and checked too. A Space and a language model are optional.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent
IMAGE, CONTAINER_PORT, DOCKER_PORT = "llmserve-env", 7860, 17861
LISTENING = re.compile(r"open (http://[\d.]+:\d+)/web")
VALIDATE_TIMEOUT_S = "30"
Status = Literal["ok", "FAIL", "skip"]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a check."""

    name: str
    status: Status
    note: str = ""


Check = Callable[[], Result]


def command_check(name: str, command: Sequence[str | Path], variables: dict[str, str] | None = None) -> Result:
    """Run a command, show its output, and pass if its exit status is 0."""
    print(f"\n== {name}: {' '.join(map(str, command))}", flush=True)
    done = subprocess.run(list(map(str, command)), cwd=ROOT, env={**os.environ, **(variables or {})}, check=False)
    return Result(name, "ok") if done.returncode == 0 else Result(name, "FAIL", f"exit status {done.returncode}")


def openenv(*arguments: str) -> list[str | Path]:
    """The `openenv` command of this Python."""
    return [Path(sys.executable).parent / "openenv", *arguments]


def check_tests() -> Result:
    """The fast tests."""
    return command_check("tests", [sys.executable, "-m", "pytest", "-q"])


def check_manifest() -> Result:
    """OpenEnv's static validation."""
    return command_check("openenv validate", openenv("validate", ".", "--level", "static", "--skip-build"))


def check_address(name: str, url: str) -> list[Result]:
    """The endpoint checks and OpenEnv's validation of a server."""
    endpoints = [sys.executable, str(ROOT / "tools" / "check_endpoints.py"), url]
    return [
        command_check(f"{name}: endpoints", endpoints),
        command_check(f"{name}: openenv validate", openenv("validate", "--url", url, "--timeout", VALIDATE_TIMEOUT_S)),
    ]


@contextmanager
def local_server() -> Iterator[str]:
    """Start a server of this checkout on a free port and yield its address."""
    variables = {**os.environ, "LLMSERVE_STORE": "memory"}
    process = subprocess.Popen(
        [sys.executable, "-m", "server.app", "--port", "0"], cwd=ROOT, env=variables, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if found := LISTENING.search(line):
                break
        else:
            raise SystemExit("the server did not start:\n" + "".join(said))
        # Keep reading the log, because a full pipe would block the server.
        reader = threading.Thread(target=said.extend, args=(process.stderr,), daemon=True)
        reader.start()
        yield found.group(1)
        process.terminate()
        reader.join(timeout=30)
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stderr.close()


def has_docker_engine() -> bool:
    """Whether a Docker engine answers."""
    docker = shutil.which("docker")
    return docker is not None and subprocess.run([docker, "info"], capture_output=True, check=False).returncode == 0


def check_docker() -> list[Result]:
    """Build the image, start it and check its server."""
    if not has_docker_engine():
        note = "no Docker engine is available; tools/replay_dockerfile.py performs the same steps without one"
        return [Result("docker", "skip", note)]
    built = command_check("docker build", ["docker", "build", "-t", IMAGE, "."])
    if built.status != "ok":
        return [built]
    publish = f"127.0.0.1:{DOCKER_PORT}:{CONTAINER_PORT}"
    name = f"{IMAGE}-check-{os.getpid()}"
    started = command_check("docker run", ["docker", "run", "--rm", "--detach", "--name", name, "-p", publish, IMAGE])
    if started.status != "ok":
        return [built, started]
    try:
        return [built, started, *check_address("docker", f"http://127.0.0.1:{DOCKER_PORT}")]
    finally:
        subprocess.run(["docker", "stop", name], stdout=subprocess.DEVNULL, check=False)


def check_openai(runtime: str, model: str | None) -> Result:
    """The baseline with a language model."""
    name = "openai baseline"
    if not os.environ.get("OPENAI_API_KEY"):
        return Result(name, "FAIL", "OPENAI_API_KEY is not set")
    base = [sys.executable, "-m", "server.baseline_inference", "--mode", "openai", "--runtime", runtime]
    command = [*base, *(["--model", model] if model else [])]
    if runtime == "in-process":
        return command_check(name, command)
    with local_server() as url:
        return command_check(name, [*command, "--base-url", url])


def run_checks(asked: argparse.Namespace) -> list[Result]:
    """Run the requested checks in order; a failed check does not stop the others."""
    results: list[Result] = []
    results.append(Result("tests", "skip", "--skip-tests") if asked.skip_tests else check_tests())
    results.append(check_manifest())
    with local_server() as url:
        results += check_address("server", url)
    results += [Result("docker", "skip", "--skip-docker")] if asked.skip_docker else check_docker()
    if asked.space_url:
        results += check_address("space", asked.space_url.rstrip("/"))
    if asked.run_openai_baseline:
        results.append(check_openai(asked.baseline_runtime, asked.model))
    return results


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description="Check everything a submission is judged by.")
    parser.add_argument("--skip-tests", action="store_true", help="skip the test suite")
    parser.add_argument("--skip-docker", action="store_true", help="leave the image out")
    parser.add_argument("--space-url", metavar="URL", help="also check a deployed Space")
    parser.add_argument(
        "--run-openai-baseline", action="store_true", help="also play with a language model; needs OPENAI_API_KEY"
    )
    parser.add_argument("--baseline-runtime", choices=["in-process", "http"], default="in-process")
    parser.add_argument("--model", metavar="NAME", help="model of the baseline (default: gpt-4.1-mini)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    results = run_checks(arguments(argv))
    print("\n== summary")
    for result in results:
        print(f"{result.status:4} {result.name}{': ' + result.note if result.note else ''}")
    return int(any(result.status == "FAIL" for result in results))


if __name__ == "__main__":
    raise SystemExit(main())
