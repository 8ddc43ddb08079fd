"""The image and the compose file: nothing unhashed, no root, no published default password."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from llmserve_env.server.settings import Settings
from tools.replay_dockerfile import instructions

ROOT = Path(__file__).resolve().parent.parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
SERVERS = ("server", "dev", "workers")


def test_openenv_finds_the_same_dockerfile_beside_the_server() -> None:
    assert (ROOT / "server" / "Dockerfile").read_text(encoding="utf-8") == DOCKERFILE


def test_everything_that_the_image_fetches_has_a_hash() -> None:
    runs = [argument for name, argument in instructions(DOCKERFILE) if name == "RUN"]
    installs = [part for run in runs for part in run.split("&&") if "pip install" in part]
    assert len(installs) == 3
    assert all("--require-hashes" in one or "--no-index" in one for one in installs)


def test_the_build_backend_and_what_it_needs_are_in_the_hashed_lists() -> None:
    found = re.search(r"\((hatchling[\w|-]*)\)==", DOCKERFILE)
    assert found is not None
    lists = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("requirements.txt", "requirements-dev.txt"))
    for name in found.group(1).split("|"):
        assert re.search(rf"^{name}==[^\n]*\\\n\s+--hash=sha256:", lists, re.MULTILINE), name


def test_no_service_runs_as_root() -> None:
    assert [argument for name, argument in instructions(DOCKERFILE) if name == "USER"] == ["1000:1000"]
    assert set(SERVICES) == {*SERVERS, "postgres"}
    for name, service in SERVICES.items():
        assert service["user"] == ("70:70" if name == "postgres" else "1000:1000")
        assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    assert all(SERVICES[name]["read_only"] for name in SERVERS)


def test_no_log_grows_without_end() -> None:
    assert all({"max-size", "max-file"} <= service["logging"]["options"].keys() for service in SERVICES.values())


def test_the_workers_of_a_service_fit_into_its_memory() -> None:
    served = {name: SERVICES[name] for name in ("server", "workers")}
    workers = {name: int(one.get("command", ["--workers", "1"])[-1]) for name, one in served.items()}
    assert workers == {"server": 1, "workers": 2}
    for name, one in served.items():
        each_mb = int(one["environment"].get("LLMSERVE_MEMORY_MB", Settings.model_fields["memory_mb"].default))
        assert one["mem_limit"] == "2g"
        assert workers[name] * each_mb * 10**6 < 2 << 30


def test_a_new_volume_can_be_written_by_the_images_user() -> None:
    folders = {volume.split(":")[1] for volume in SERVICES["server"]["volumes"]}
    assert folders == {SERVICES["server"]["environment"]["LLMSERVE_DATA_DIR"]} == {"/data"}
    final = list(instructions(DOCKERFILE))
    final = final[max(i for i, (name, _) in enumerate(final) if name == "FROM") :]
    made = final.index(("RUN", "mkdir -p -m 1777 /data"))
    assert made < [name for name, _ in final].index("USER")


def test_ports_are_published_on_this_machine_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == len(SERVERS)
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_there_is_no_default_password() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{POSTGRES_PASSWORD(:.)", text)) == {":?"}


def test_every_image_that_is_fetched_is_pinned_by_its_digest() -> None:
    # A line `# syntax=` would fetch the image that reads the Dockerfile.
    assert "syntax=" not in DOCKERFILE
    stages = [argument for name, argument in instructions(DOCKERFILE) if name == "FROM"]
    assert [stage.split()[0] for stage in stages] == ["${BASE}", "${BASE}"]
    base = [argument for name, argument in instructions(DOCKERFILE) if name == "ARG"]
    fetched = [service["image"] for service in SERVICES.values() if "build" not in service]
    assert len(base) == len(fetched) == 1
    assert re.fullmatch(r"BASE=python:3\.11\.\d+-slim@sha256:[0-9a-f]{64}", base[0])
    assert all(re.search(r"@sha256:[0-9a-f]{64}$", image) for image in fetched)
