"""The vLLM versions that the scheduler was tried with, and how they differ. Standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Differences:
    """What the steering scheduler must know about a version."""

    cap_attribute: str
    """Attribute of the scheduler that limits admissions."""
    cap_bounds_running: bool
    """Whether vLLM asserts that no more requests run than that attribute says, so that it may not fall below them."""
    tried_on: str


TRIED = {
    "0.26": Differences("max_num_running_reqs", cap_bounds_running=True, tried_on="0.26.0 on an H200"),
    "0.32": Differences("max_num_active_reqs", cap_bounds_running=False, tried_on="0.32.0 on a CPU"),
}


class UntriedVersionError(RuntimeError):
    """This vLLM may have renamed what the scheduler steers."""


def differences_of(version: str) -> Differences:
    """The differences of a version, `major.minor` being what counts."""
    found = re.match(r"\d+\.\d+", version)
    if found is None or found.group() not in TRIED:
        tried = ", ".join(differences.tried_on for differences in TRIED.values())
        raise UntriedVersionError(
            f"vLLM {version} was never tried with llmserve_steering; tried: {tried}. Install one of these, or add the "
            "version to TRIED in llmserve_steering/versions.py and run `make real-test` with it"
        )
    return TRIED[found.group()]
