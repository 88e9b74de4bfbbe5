"""The rounding rule and the power-of-two exponent."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapis.codes import MAX_WINDOW, check_codes, check_tau, check_window, pow2_exponent, round_half_up
from lapis.errors import LapisError


@given(st.integers(-1000, 1000))
def test_ties_round_upward(n: int) -> None:
    assert round_half_up(n + 0.5) == n + 1
    assert round_half_up(float(n)) == n


@given(st.floats(-1e6, 1e6, width=32))
def test_rounding_is_the_threshold_comparison(x: float) -> None:
    z = int(round_half_up(x))
    assert Fraction(z) - Fraction(1, 2) <= Fraction(x) < Fraction(z) + Fraction(1, 2)


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_pow2_exponent_is_the_nearest_integer_to_log2(z: float) -> None:
    k = int(pow2_exponent(z))
    # k - 1/2 <= log2 z < k + 1/2, squared so that it stays in exact rationals.
    assert Fraction(2) ** (2 * k - 1) <= Fraction(z) ** 2 < Fraction(2) ** (2 * k + 1)


@pytest.mark.parametrize("k", range(-30, 31))
def test_pow2_exponent_is_exact_next_to_half_way_points(k: int) -> None:
    near = math.sqrt(2.0) * 2.0**k
    for z in (np.nextafter(near, 0), near, np.nextafter(near, np.inf)):
        expected = k + 1 if Fraction(float(z)) ** 2 > Fraction(2) ** (2 * k + 1) else k
        assert int(pow2_exponent(z)) == expected


def test_pow2_exponent_of_integers_matches_exact_arithmetic() -> None:
    for z in [*range(1, 3000), 2**31, 46341, 46340, 2**53 - 1]:
        k = int(pow2_exponent(np.int64(z)))
        assert Fraction(2) ** (2 * k - 1) < Fraction(z) ** 2 < Fraction(2) ** (2 * k + 1)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_pow2_exponent_refuses_what_has_none(bad: float) -> None:
    with pytest.raises(LapisError, match="positive and finite"):
        pow2_exponent(bad)


def test_pow2_exponent_refuses_integers_beyond_exactness() -> None:
    with pytest.raises(LapisError, match="2\\*\\*53"):
        pow2_exponent(np.int64(2**60))


@pytest.mark.parametrize("bad", [0, -1, MAX_WINDOW + 1, 1.5, True, "15"])
def test_a_window_outside_its_range_is_refused(bad: int) -> None:
    with pytest.raises(LapisError, match="window"):
        check_window(bad)


@pytest.mark.parametrize("bad", [[0, 16], [-1, 3]])
def test_codes_outside_the_window_are_refused_with_what_was_seen(bad: list[int]) -> None:
    with pytest.raises(LapisError, match=f"{min(bad)}..{max(bad)}.*0..15"):
        check_codes(bad, 15)


def test_real_codes_are_refused() -> None:
    with pytest.raises(LapisError, match="float64"):
        check_codes([0.5], 15)


@pytest.mark.parametrize("bad", [0.0, -2.0, math.nan, math.inf])
def test_tau_must_be_positive_and_finite(bad: float) -> None:
    with pytest.raises(LapisError, match="tau"):
        check_tau([1.0, bad])
