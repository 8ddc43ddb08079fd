from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from llmserve_env.errors import ProfileError
from llmserve_env.profiles.curves import CurveTerm, relative_nnls, values_at_knots
from llmserve_env.profiles.fitting import Iteration, fit


def linear_iterations(count: int) -> list[Iteration]:
    """Iterations whose time is a known line: 3 ms, 10 us a token, 1 us a thousand context tokens, 2 ns a pair."""
    draw = random.Random(0)
    found = []
    for _ in range(count):
        decoding, chunk = draw.randrange(0, 200), draw.choice((0, draw.randrange(1, 2000)))
        context = decoding * draw.randrange(1, 2000)
        pairs = chunk * (chunk + 1) // 2
        ms = 3.0 + 0.01 * (decoding + chunk) + 1e-6 * context + 2e-6 * pairs
        if decoding or chunk:
            found.append(Iteration("FP16", 1, decoding, context, int(chunk > 0), chunk, pairs, ms))
    return found


def test_a_known_cost_is_found_again() -> None:
    fitted = fit(linear_iterations(400))["FP16"]
    tokens, gemm = fitted.gemm
    per_token = fitted.lines["per_decode_token"] + (gemm[-1] - gemm[0]) / (tokens[-1] - tokens[0])
    assert per_token + fitted.lines["per_sequence"] == pytest.approx(0.01, rel=0.05)
    context, attention = fitted.decode_attention[1]
    assert (attention[-1] - attention[-2]) / (context[-1] - context[-2]) == pytest.approx(1e-6, rel=0.1)
    assert fitted.lines["overhead"] + gemm[0] + attention[0] == pytest.approx(3.0, rel=0.05)


def test_fitted_curves_never_fall_even_where_times_do() -> None:
    bumpy = [
        Iteration("FP16", 1, 0, 0, 1, n, n * n // 2, 5.0 + n / 100 + (n == 448) * 4.0) for n in range(64, 1024, 64)
    ]
    fitted = fit(bumpy)["FP16"]
    for _, ms in (fitted.gemm, fitted.prefill_attention):
        assert all(a <= b for a, b in pairwise(ms))


def test_one_odd_iteration_does_not_bend_the_curve() -> None:
    clean = [Iteration("FP16", 1, n, n * 100, 0, 0, 0, 4.0 + n / 50) for n in range(1, 512)]
    odd = [*clean, *(Iteration("FP16", 1, 448, 44_800, 0, 0, 0, 30.0) for _ in range(3))]
    a, b = fit(clean)["FP16"], fit(odd)["FP16"]
    at = a.gemm[0].index(448)
    assert b.gemm[1][at] + b.lines["overhead"] == pytest.approx(a.gemm[1][at] + a.lines["overhead"], rel=0.08)


def test_a_curve_is_linear_beyond_its_last_knot_and_zero_at_zero() -> None:
    x = np.array([0.0, 1.0, 5.0, 10.0, 20.0])
    columns = CurveTerm((1, 5, 10)).columns(x)
    assert columns @ np.array([1.0, 4.0, 5.0]) == pytest.approx([0.0, 1.0, 5.0, 10.0, 20.0])
    assert values_at_knots(np.array([1.0, 4.0, 5.0])) == pytest.approx([1.0, 5.0, 10.0])


def test_coefficients_are_never_negative() -> None:
    columns = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    assert (relative_nnls(columns, np.array([3.0, 2.0, 1.0])) >= 0).all()


def test_nothing_to_fit_is_refused() -> None:
    with pytest.raises(ProfileError, match="nothing to fit"):
        fit([])
