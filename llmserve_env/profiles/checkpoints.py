"""Published checkpoints of the profiled models on the Hugging Face hub, by precision and context window.

`checkpoints.json` lists, per model, checkpoints of one architecture and size, those of the smaller context first: a
profile holds for all of them. A precision that is not listed has no published checkpoint that we know of.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from llmserve_env.profiles.architectures import HUB_NAMES
from llmserve_env.profiles.model_spec import hub_name as known_hub_name


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What `vllm serve` is given as its model."""

    hub_name: str
    max_model_len: int | None
    """Longest context that the model's own config allows; None where it is not listed."""


_LISTED = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def find_checkpoint(model: str, tier_name: str, context_tokens: int) -> Checkpoint | None:
    """The first checkpoint of this precision that takes such a context, else the one that takes the longest.

    A model that is not listed has its original checkpoint only.
    """
    if model not in _LISTED:
        return Checkpoint(HUB_NAMES.get(model) or known_hub_name(model), None) if tier_name == "FP16" else None
    found = [
        Checkpoint(row["tiers"][tier_name], row["max_model_len"]) for row in _LISTED[model] if tier_name in row["tiers"]
    ]
    long_enough = [one for one in found if one.max_model_len and one.max_model_len >= context_tokens]
    return next(iter(long_enough or found[-1:]), None)
