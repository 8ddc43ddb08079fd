"""Hosts: files with their source, and the fit that makes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from llmserve_env.engine.costs import HostTime
from llmserve_env.errors import ProfileError
from llmserve_env.profiles.host import list_hosts, load_host, save_host
from llmserve_env.profiles.host_fitting import HostIterations, fit_host

SIZE = 400


def made_up(num_prefills: int = SIZE // 2) -> HostIterations:
    """Iterations of a known host, with the tail of one that is interrupted now and then."""
    rng = np.random.default_rng(0)
    sequences, admissions = rng.integers(1, 120, SIZE), rng.integers(0, 3, SIZE)
    prefill = np.where(np.arange(SIZE) < num_prefills, rng.choice([64, 900], SIZE), 0)
    tokens = sequences + prefill
    base = np.where(tokens > 256, 28.0, np.where(prefill > 0, 13.0, 2.5))
    launch = base + 0.02 * sequences + 0.5 * admissions + np.where(rng.random(SIZE) < 0.05, 20.0, 0.0)
    extra = 0.1 + 0.007 * sequences
    return HostIterations(
        sequences, admissions, tokens, prefill, np.full(SIZE, 256), launch, 0.05 + 0.01 * sequences, extra
    )


def test_the_fit_finds_the_host_that_made_the_iterations() -> None:
    found = fit_host(made_up())
    for mode, base_ms in ((found.full_graph, 2.5), (found.piecewise_graph, 13.0), (found.no_graph, 28.0)):
        assert mode.base_ms == pytest.approx(base_ms, abs=0.05)
        assert mode.per_sequence_ms == pytest.approx(0.02, abs=0.002)
    assert found.per_admission_ms == pytest.approx(0.5, abs=0.02)
    assert (found.output.base_ms, found.output.per_sequence_ms) == pytest.approx((0.05, 0.01), abs=1e-3)
    assert (found.sampling.base_ms, found.sampling.per_sequence_ms) == pytest.approx((0.1, 0.007), abs=1e-3)


def test_a_mode_without_iterations_is_named() -> None:
    with pytest.raises(ProfileError, match="0 iterations of mode 'piecewise graph' are too few"):
        fit_host(made_up(num_prefills=0))


@pytest.mark.parametrize("name", list_hosts())
def test_shipped_hosts_are_valid_and_say_where_they_come_from(name: str) -> None:
    host = load_host(name)
    assert host.name == name
    assert "python -m" in host.provenance
    assert host.costs().no_graph.base_ps > host.costs().full_graph.base_ps > 0


def test_a_host_comes_back_as_it_was_written(tmp_path: Path) -> None:
    host = load_host(list_hosts()[0]).model_copy(update={"name": "mine"})
    assert load_host(save_host(host, tmp_path)) == host
    assert host.costs().output == HostTime(round(host.output.base_ms * 1e9), round(host.output.per_sequence_ms * 1e9))


def test_an_unknown_host_and_a_bad_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="no host 'mine'; choose one of"):
        load_host("mine")
    path = tmp_path / "bad.json"
    path.write_text('{"name": "bad"}')
    with pytest.raises(ProfileError, match=r"bad\.json is not a valid host: machine"):
        load_host(path)
