"""The rules by the names that commands use."""

from __future__ import annotations

from llmserve_env.errors import ConfigError
from llmserve_env.fleet.rules.apa import Apa
from llmserve_env.fleet.rules.constant import Constant
from llmserve_env.fleet.rules.dynamo import Dynamo
from llmserve_env.fleet.rules.hpa import Hpa
from llmserve_env.fleet.rules.informed import Informed
from llmserve_env.fleet.rules.keda import Keda
from llmserve_env.fleet.rules.kpa import Kpa
from llmserve_env.fleet.rules.oracle import Oracle
from llmserve_env.fleet.rules.scaler import Scaler
from llmserve_env.fleet.rules.wva import Wva

SCALERS: dict[str, type[Scaler]] = {
    "constant": Constant,
    "hpa": Hpa,
    "keda": Keda,
    "kpa": Kpa,
    "apa": Apa,
    "wva": Wva,
    "dynamo": Dynamo,
    "informed": Informed,
    "oracle": Oracle,
}
OPERATORS = ("hpa", "keda", "kpa", "apa", "wva", "dynamo")
"""Rules that operators use today; the best of them is what a learner must beat."""


def check_rule(name: str) -> str:
    """The name, if a rule has it."""
    if name not in SCALERS:
        raise ConfigError(f"there is no rule {name!r}; known: {', '.join(SCALERS)}")
    return name
