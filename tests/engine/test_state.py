"""The kernels' records are filled field by field: nothing is left at zero by accident."""

from __future__ import annotations

import numpy as np
import pytest

from llmserve_env.engine import state
from llmserve_env.engine.layout import DEPLOYMENT_DTYPE
from llmserve_env.env.warmup import smallest_deployment
from llmserve_env.errors import InvariantViolation


def test_every_field_of_the_deployment_record_has_a_value() -> None:
    assert set(state.deployment_values(smallest_deployment(), False)) == set(DEPLOYMENT_DTYPE.names or ())


def test_a_renamed_field_of_the_record_is_an_error() -> None:
    renamed = np.dtype(
        [(n.replace("max_model_len", "longest"), DEPLOYMENT_DTYPE[n]) for n in DEPLOYMENT_DTYPE.names or ()]
    )
    with pytest.raises(InvariantViolation, match="'longest', 'max_model_len'"):
        state.fill_record(np.zeros(1, renamed)[0], state.deployment_values(smallest_deployment(), False))


def test_a_renamed_attribute_of_the_deployment_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "DEPLOYMENT_FIELDS", (*state.DEPLOYMENT_FIELDS, "longest"))
    with pytest.raises(AttributeError, match="longest"):
        state.deployment_values(smallest_deployment(), False)
