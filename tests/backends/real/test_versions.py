"""The vLLM versions that the steering scheduler was tried with."""

from __future__ import annotations

import pytest

from llmserve_env.backends.real.plugin.llmserve_steering.versions import TRIED, UntriedVersionError, differences_of


@pytest.mark.parametrize(
    ("version", "attribute"),
    [("0.26.0", "max_num_running_reqs"), ("0.32.0", "max_num_active_reqs"), ("0.32.1+cpu", "max_num_active_reqs")],
)
def test_each_tried_version_knows_its_cap(version: str, attribute: str) -> None:
    assert differences_of(version).cap_attribute == attribute


@pytest.mark.parametrize("version", ["0.27.0", "1.0", "dev", ""])
def test_a_version_never_tried_is_refused_with_those_that_were(version: str) -> None:
    with pytest.raises(UntriedVersionError, match="was never tried") as caught:
        differences_of(version)
    assert all(differences.tried_on in str(caught.value) for differences in TRIED.values())
