"""Defaults for what a task file leaves out. The shipped files spell everything out; other files need not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llmserve_env.engine.knobs import KNOBS
from llmserve_env.engine.tiers import TIERS_BY_NAME
from llmserve_env.profiles.memory import UTILISATION
from llmserve_env.profiles.serving import WORDS, with_profile
from llmserve_env.profiles.store import load_profile
from llmserve_env.tasks.files import number_of, suite_of
from llmserve_env.units import bytes_to_gb

HOST = "xeon-h200-vllm-0.26"
"""The CPU of a deployment in words that names none; `host: null` leaves the GPU alone."""
WAITING_ROOM = 64
REWARD_WEIGHTS = {"throughput": 0.40, "latency": 0.25, "violations": 0.35, "cost": 0.15, "memory": 0.15}
GRADER_WEIGHTS = {"throughput": 0.30, "slo": 0.40, "cost": 0.20, "memory": 0.10}


def with_defaults(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a task, with defaults for every part left out; fields that are given stay, right or wrong."""
    filled: dict[str, Any] = dict(data)
    filled.setdefault("suite", suite_of(str(data.get("id"))))
    filled.setdefault("number", number_of(str(data.get("id"))))
    classes = _class_names(data.get("workload"))
    filled["deployment"] = _deployment(data.get("deployment"), len(classes))
    if "knobs" not in data:
        filled["knobs"] = {"active": _active_knobs(filled["deployment"])}
    filled["reward"] = _reward(data.get("reward", {}), classes, _tiers(filled["deployment"]))
    filled.setdefault("grader", {"weights": GRADER_WEIGHTS})
    if filled["deployment"] is None:
        del filled["deployment"]
    return filled


def _active_knobs(deployment: Any) -> list[str]:
    """Every knob that is not optional, and last those that act on a part of the deployment which is there."""
    parts = deployment if isinstance(deployment, Mapping) else {}
    usual = [knob for knob in KNOBS if not knob.is_optional]
    return [knob.name for knob in usual if not knob.needs] + [knob.name for knob in usual if parts.get(knob.needs)]


def _class_names(workload: Any) -> list[str]:
    """Names of the classes, as far as the section is well formed."""
    if not isinstance(workload, Mapping):
        return list(getattr(workload, "class_names", ()))
    classes = workload.get("classes")
    named = classes if isinstance(classes, list | tuple) else ()
    return [one["name"] for one in named if isinstance(one, Mapping) and isinstance(one.get("name"), str)]


def _deployment(section: Any, num_classes: int) -> Any:
    if not isinstance(section, Mapping):
        return section
    is_in_words = any(word in section for word in WORDS)
    filled = with_profile(section) if is_in_words else dict(section)
    filled.setdefault("waiting_room", [WAITING_ROOM] * num_classes)
    if is_in_words:
        filled.setdefault("host", HOST)
        if "memory_limit_gb" not in filled:
            filled.setdefault("gpu_memory_utilization", UTILISATION)
    utilisation = filled.get("gpu_memory_utilization")
    if "memory_limit_gb" not in filled and isinstance(filled.get("profile"), str):
        card_gb = bytes_to_gb(load_profile(filled["profile"]).gpu.memory_bytes)
        share = utilisation if isinstance(utilisation, float | int) else UTILISATION
        filled["memory_limit_gb"] = round(share * card_gb, 1)
    return filled


def _tiers(deployment: Any) -> list[str]:
    """Names of the tiers that the deployment offers, as far as the section is well formed."""
    parts = deployment if isinstance(deployment, Mapping) else {}
    if isinstance(parts.get("tiers"), list | tuple):
        return [str(name) for name in parts["tiers"]]
    return list(load_profile(parts["profile"]).tiers) if isinstance(parts.get("profile"), str) else []


def default_quality(tiers: Sequence[str]) -> list[float]:
    """What an answer is worth by tier, where a contract does not price it."""
    return [TIERS_BY_NAME[name].quality for name in tiers if name in TIERS_BY_NAME]


def _reward(section: Any, classes: list[str], tiers: list[str]) -> Any:
    if not isinstance(section, Mapping):
        return section
    filled = dict(section)
    filled.setdefault("weights", REWARD_WEIGHTS)
    filled.setdefault("itl_comfort_ms", 10)
    filled.setdefault("itl_limit_ms", 50)
    filled.setdefault("class_weights", dict.fromkeys(classes, 1.0))
    filled.setdefault("quality", dict.fromkeys(classes, default_quality(tiers)))
    return filled
