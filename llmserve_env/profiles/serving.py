"""What a deployment serves, in words: GPU, model, precisions and parallelism; and the profile they stand for.

A profile is shipped, or composed from the published timings if they are installed. That of a model which is known by
its config.json alone is written to the user's cache, so that other processes find it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.errors import ProfileError
from llmserve_env.profiles.composing.served import KV_BYTES, Served
from llmserve_env.profiles.gpus import GPUS
from llmserve_env.profiles.memory import check_card
from llmserve_env.profiles.model_spec import find_model, known_models
from llmserve_env.profiles.naming import parse_name, profile_name
from llmserve_env.profiles.schema import Profile
from llmserve_env.profiles.store import find_shipped, save_profile

WAYS = ("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel_attention")
WORDS = ("gpu", "model", *WAYS, "weights", "kv_cache")
CACHE = Path.home() / ".cache" / "llmserve_env" / "profiles"


def served_profile(gpu_name: str, served: Served) -> Profile:
    """The profile of one replica; it has the tier that is served, and maybe others."""
    if gpu_name not in GPUS:
        raise ProfileError(f"gpu {gpu_name!r} is not known; choose one of {', '.join(GPUS)}")
    shipped = find_shipped(profile_name(gpu_name, served)) if served.model.name in known_models() else None
    if shipped is not None and served.weights in shipped.tiers:
        return shipped
    check_card(gpu_name, served)
    from llmserve_env.profiles.composing.compose import compose_profile

    return compose_profile(gpu_name, served, datetime.now(UTC).date().isoformat())


def composed_by_name(name: str) -> Profile | None:
    """The profile that a name of `naming.profile_name` stands for, composed in every tier that fits; or None."""
    parsed = parse_name(name)
    if parsed is None:
        return None
    from llmserve_env.profiles.composing.compose import compose_profile

    gpu_name, served = parsed
    return compose_profile(gpu_name, served, datetime.now(UTC).date().isoformat(), TIER_NAMES)


def with_profile(section: Mapping[str, Any]) -> dict[str, Any]:
    """A deployment section whose words are replaced by the profile and the tiers they stand for."""
    if "profile" in section:
        both = [word for word in WORDS if word in section]
        raise ProfileError(f"give either profile or {', '.join(both)}, not both")
    gpu_name, served, tiers = read_words(section)
    profile = served_profile(gpu_name, served)
    rest = {name: value for name, value in section.items() if name not in WORDS}
    where = profile.name if served.model.name in known_models() else str(_cached(profile))
    return {"profile": where, "tiers": tiers, **rest}


def read_words(section: Mapping[str, Any]) -> tuple[str, Served, list[str]]:
    """The GPU, what a replica of it serves, and the tiers that are offered; ProfileError names a word that is wrong."""
    for word in ("gpu", "model"):
        if not isinstance(section.get(word), str) or not section[word]:
            raise ProfileError(f"{word} must be a name; got {section.get(word)!r}")
    ways = {name: section.get(name, 1) for name in WAYS}
    for name, value in ways.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ProfileError(f"{name} must be a whole number of 1 or more; got {value!r}")
    weights = section.get("weights", "fp16")
    tiers = [str(one).upper() for one in (weights if isinstance(weights, list | tuple) else [weights])]
    unknown = [name.lower() for name in tiers if name not in TIER_NAMES]
    if unknown or not tiers:
        raise ProfileError(f"weights {weights!r} unknown; choose from {', '.join(n.lower() for n in TIER_NAMES)}")
    kv_cache = str(section.get("kv_cache", "fp16")).lower()
    if kv_cache not in KV_BYTES:
        raise ProfileError(f"kv_cache {section['kv_cache']!r} unknown; choose one of {', '.join(KV_BYTES)}")
    served = Served(find_model(section["model"]), tiers[0], kv_cache, **ways)
    return section["gpu"], served, tiers


def _cached(profile: Profile) -> Path:
    """The file that holds this profile, named after its content."""
    digest = hashlib.sha256(profile.model_dump_json(exclude={"provenance"}).encode()).hexdigest()[:12]
    folder = CACHE / digest
    path = folder / f"{profile.name}.json"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        save_profile(profile, folder)
    return path
