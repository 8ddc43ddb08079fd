"""Find, read and write profiles."""

from __future__ import annotations

import gzip
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from llmserve_env.errors import ProfileError
from llmserve_env.profiles.schema import FORMAT_VERSION, Profile

DATA = Path(__file__).parent / "data"
COMPOSED = DATA / "composed"
"""A compressed file per card, a profile per line: what `tools.compose_profiles` writes."""


def list_profiles() -> list[str]:
    """Names of the shipped profiles, `<gpu>.<model>`."""
    return sorted(path.name.removesuffix(".json") for path in DATA.glob("*.json"))


def load_profile(name: str | Path) -> Profile:
    """Read and check a profile: a shipped name such as `a100-40gb.llama-3-8b`, or the path of a `.json` file."""
    path = Path(name) if str(name).endswith(".json") else DATA / f"{name}.json"
    if not path.is_file():
        found = find_shipped(str(name)) or _composed(str(name))
        if found is not None:
            return found
        raise ProfileError(
            f"no profile {str(name)!r}; choose one of {', '.join(list_profiles())}, or one that is composed "
            "(llmserve profile list --composed), or give the path of a .json file"
        )
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=32)
def _composed(name: str) -> Profile | None:
    """A profile of a known model that is not shipped, if its name says what it serves."""
    from llmserve_env.profiles.serving import composed_by_name

    return composed_by_name(name)


def find_shipped(name: str) -> Profile | None:
    """A composed profile that is part of the package, or None."""
    line = _composed_lines(name.split(".")[0]).get(name)
    return None if line is None else _parse(line)


def shipped_tiers(name: str) -> list[str]:
    """Tiers of a composed profile that is part of the package, without checking the rest of it."""
    return list(json.loads(_composed_lines(name.split(".")[0])[name])["tiers"])


def list_composed() -> list[str]:
    """Names of the composed profiles that are part of the package."""
    return sorted(name for path in COMPOSED.glob("*.jsonl.gz") for name in _composed_lines(path.name.split(".")[0]))


@lru_cache(maxsize=16)
def _composed_lines(gpu_name: str) -> dict[str, str]:
    """The composed profiles of a card as text; each line begins with its name and a tab."""
    path = COMPOSED / f"{gpu_name}.jsonl.gz"
    if not path.is_file():
        return {}
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    return dict(line.split("\t", 1) for line in lines)


@lru_cache(maxsize=64)
def _parse(text: str) -> Profile:
    return Profile.model_validate_json(text)


@lru_cache(maxsize=32)
def _read(path: Path, _changed_at_ns: int) -> Profile:
    """The profile in a file, parsed once for as long as the file stays as it is."""
    try:
        return Profile.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ProfileError(f"{path.name} is not a valid profile: {_first_problem(error)}") from error


def build_profile(**parts: Any) -> Profile:
    """A profile from its parts, validated like a loaded one."""
    try:
        return Profile.model_validate({"format_version": FORMAT_VERSION, **parts})
    except ValidationError as error:
        raise ProfileError(f"these parts do not form a valid profile: {_first_problem(error)}") from error


def save_profile(profile: Profile, folder: Path = DATA) -> Path:
    """Write `<name>.json`, indented, with each list of numbers on one line."""
    path = folder / f"{profile.name}.json"
    path.write_text(_compact_lists(profile.model_dump(mode="json", exclude_none=True)) + "\n", encoding="utf-8")
    return path


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}" if where else str(problem["msg"])


def _compact_lists(value: object, indent: int = 0) -> str:
    pad, inner = "  " * indent, "  " * (indent + 1)
    if isinstance(value, dict) and value:
        rows = (f"{inner}{json.dumps(k)}: {_compact_lists(v, indent + 1)}" for k, v in value.items())
        return "{\n" + ",\n".join(rows) + f"\n{pad}}}"
    if isinstance(value, list) and any(isinstance(v, dict) for v in value):
        rows = (f"{inner}{_compact_lists(v, indent + 1)}" for v in value)
        return "[\n" + ",\n".join(rows) + f"\n{pad}]"
    return json.dumps(value)
