"""Replay the Dockerfile without Docker: `python tools/replay_dockerfile.py [--keep FOLDER] [--skip-server]`.

Every step runs in a folder that represents the image's root: absolute paths below /opt, /app, /tmp and /data are moved
there. Then the entry point is started as the image would start it, the endpoints are checked, and the installed size is
printed. The base image is not replayed; this machine's Python takes its place.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_MB = 900
MOVED = re.compile(r"(?<![\w.])/(opt|app|tmp|data)(?=/|\b)")
IGNORED = ("ARG", "EXPOSE", "HEALTHCHECK", "USER")


@dataclass
class Image:
    """A folder that represents an image's root, and what the Dockerfile has set so far."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    def place(self, text: str) -> str:
        """The text with the image's absolute paths moved below the root."""
        return MOVED.sub(lambda found: f"{self.root}/{found.group(1)}", text)

    def folder(self) -> Path:
        found = Path(self.place(self.workdir))
        found.mkdir(parents=True, exist_ok=True)
        return found

    def variables(self) -> dict[str, str]:
        """The environment variables of a command in the image."""
        kept = {name: os.environ[name] for name in os.environ if name.startswith("PIP_") or name == "SSL_CERT_FILE"}
        path = os.environ["PATH"]
        moved = {name: self.place(value).replace("$PATH", path) for name, value in self.env.items()}
        return {"PATH": path, "HOME": str(self.root / "tmp"), "LANG": "C.UTF-8", **kept, **moved}


def say(text: str) -> None:
    """Print progress to stderr."""
    print(text, file=sys.stderr, flush=True)


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Every instruction and its argument, with continued lines joined and comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), rest.strip()


def ignored(root: Path) -> list[str]:
    """Patterns of .dockerignore for a copy."""
    lines = (root / ".dockerignore").read_text(encoding="utf-8").splitlines()
    return [line.strip().removeprefix("**/") for line in lines if line.strip() and not line.startswith("#")]


def copy(image: Image, argument: str) -> None:
    """COPY from the context; copies from another stage need nothing, because all stages share the root."""
    parts = shlex.split(argument)
    if parts[0].startswith("--from="):
        missing = [source for source in parts[1:-1] if not Path(image.place(source)).exists()]
        if missing:
            raise SystemExit(f"COPY {argument}: {', '.join(missing)} does not exist")
        return
    patterns = shutil.ignore_patterns(*ignored(ROOT))
    for source in parts[:-1]:
        origin, target = ROOT / source, image.folder() / parts[-1]
        if origin.is_dir():
            shutil.copytree(origin, target, ignore=patterns, dirs_exist_ok=True)
        else:
            shutil.copy(origin, target)


def run(image: Image, command: str) -> None:
    """RUN in a shell."""
    say(f"RUN {command[:110]}")
    shell = ["bash", "-c", image.place(command)]
    done = subprocess.run(shell, cwd=image.folder(), env=image.variables(), stdout=sys.stderr, check=False)
    if done.returncode:
        raise SystemExit(f"RUN failed with status {done.returncode}: {command}")


def replay(image: Image, dockerfile: str) -> None:
    """All instructions in order."""
    for name, argument in instructions(dockerfile):
        match name:
            case "FROM":
                image.env, image.workdir = {}, "/"
            case "ENV":
                image.env |= dict(part.split("=", 1) for part in shlex.split(argument))
            case "WORKDIR":
                image.workdir = argument
                image.folder()
            case "COPY":
                copy(image, argument)
            case "RUN":
                run(image, argument)
            case "ENTRYPOINT":
                image.entrypoint = json.loads(argument)
            case "CMD":
                image.command = json.loads(argument)
            case _ if name not in IGNORED:
                raise SystemExit(f"{name}: this script does not support the instruction; add it")


def size_mb(folder: Path) -> float:
    """Total size of all files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def own_task(image: Image) -> Path:
    """A folder with a task over a trace that the image imports, to show that its slimmed libraries suffice."""
    folder = image.root / "tmp" / "own_workload"
    shutil.copytree(ROOT / "examples" / "own_workload", folder, dirs_exist_ok=True)
    options = "--format csv --overwrite -o requests.parquet"
    run(image, f"cd /tmp/own_workload && llmserve trace import sample_log.csv {options}")
    return folder


def check_server(image: Image, ports: list[int]) -> int:
    """Start the entry point on free ports and check every endpoint."""
    command = [image.place(part) for part in image.entrypoint + image.command]
    chosen = iter(map(str, ports))
    command = [next(chosen) if part in ("7860", "8000") else part for part in command]
    command = ["127.0.0.1" if part == "0.0.0.0" else part for part in command]
    # The entry point is a shell script that names folders of the image.
    script = Path(command[0])
    script.write_text(image.place(script.read_text(encoding="utf-8")), encoding="utf-8")
    say(f"starting {' '.join(command)}")
    variables = {**image.variables(), "LLMSERVE_TASKS": str(own_task(image)), "LLMSERVE_LOG_REQUESTS": "false"}
    server = subprocess.Popen(command, cwd=image.folder(), env=variables)
    try:
        check = [sys.executable, str(ROOT / "tools" / "check_endpoints.py"), f"http://127.0.0.1:{ports[1]}"]
        return subprocess.run(check, stdout=sys.stderr, check=False).returncode
    finally:
        server.terminate()
        server.wait(timeout=30)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Replay the Dockerfile without Docker.")
    parser.add_argument("--keep", type=Path, help="folder for the replayed image (default: a temporary one)")
    parser.add_argument("--skip-server", action="store_true", help="only build, do not start")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        image = Image((asked.keep or Path(temporary)).resolve())
        for name in ("opt", "app", "tmp"):
            (image.root / name).mkdir(parents=True, exist_ok=True)
        replay(image, (ROOT / "Dockerfile").read_text(encoding="utf-8"))
        installed_mb = size_mb(image.root / "opt")
        print(f"installed: {installed_mb:.0f} MB above the base image (bar: {MAX_MB} MB)")
        if asked.skip_server:
            return int(installed_mb > MAX_MB)
        failed = check_server(image, [17860, 18000])
        print(
            f"endpoints and agents of a server started as the image starts it: {'not all' if failed else 'all'} right"
        )
    return int(bool(failed) or installed_mb > MAX_MB)


if __name__ == "__main__":
    raise SystemExit(main())
