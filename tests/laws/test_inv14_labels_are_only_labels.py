"""INV-14: tenants are only labels, and so are classes without priority routing: renaming them changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given

from tests.engine.random_cases import Case, random_case
from tests.laws.observing import law, seeds, serve_case, visible


@given(seed=seeds)
@law
def test_relabelled_tenants_change_nothing(seed: int) -> None:
    case = random_case(seed)
    tenants = np.random.default_rng(seed).integers(0, 9, len(case.requests))
    renamed = replace(case, requests=replace(case.requests, tenant=tenants))
    assert visible(serve_case(renamed)) == visible(serve_case(case))


@given(seed=seeds)
@law
def test_without_priority_routing_relabelled_classes_change_nothing(seed: int) -> None:
    case = first_come_first_served(random_case(seed))
    classes = np.random.default_rng(seed).permutation(3)[case.requests.priority]
    renamed = replace(case, requests=replace(case.requests, priority=classes))
    a, b = (visible(serve_case(c)) for c in (case, renamed))
    for state in (a, b):
        state["waiting"] = [sorted(ids) for ids in state["waiting"]]
    assert a == b


def first_come_first_served(case: Case) -> Case:
    """The same case without anything that depends on classes."""
    windows = tuple((until_ps, replace(knobs, priority_routing=False)) for until_ps, knobs in case.windows)
    return replace(case, windows=windows, deployment=replace(case.deployment, waiting_room=(1_000,) * 3))
