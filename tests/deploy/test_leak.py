"""Laws of the integer leak."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.synthetic import tables_of
from lapis.config import AFFINITY_BITS
from lapis.deploy.leak import affinity_tables, leak_factor, leak_table, read, time_constant
from lapis.errors import LapisError

# Truncating a mantissa of at least 2**31 loses less than 2**-31 of it a step, and so does rounding beta.
LOSS_PER_STEP = 2.0**-31


@given(tau=st.floats(1e-3, 1e6), size=st.integers(1, 600))
def test_the_leak_follows_the_exponential_at_any_distance(tau: float, size: int) -> None:
    u, e = leak_table(*leak_factor([tau]), size)
    ours = np.log(u[0].astype(np.float64)) - (32 + e[0]) * np.log(2.0)
    distance = np.arange(size)
    # The comparison itself is in float64: its logarithms carry an error relative to their size.
    assert np.abs(ours + distance / tau).max() <= 2 * size * LOSS_PER_STEP + 1e-14 * size / tau


WIDTHS = st.integers(1, AFFINITY_BITS)


@given(bits=WIDTHS, tau=st.floats(0.05, 1e3), nearest=st.integers(0, 300), farther=st.integers(0, 300))
def test_the_nearest_key_of_a_row_reads_all_bits_and_farther_keys_less(
    bits: int, tau: float, nearest: int, farther: int
) -> None:
    u, e = leak_table(*leak_factor([tau]), nearest + farther + 1)
    gain = e[0, nearest]
    first = int(read(u[0, nearest], e[0, nearest], gain, bits))
    assert 1 << (bits - 1) <= first <= (1 << bits) - 1
    assert 0 <= int(read(u[0, nearest + farther], e[0, nearest + farther], gain, bits)) <= first


@given(bits=WIDTHS, tau=st.floats(2.0, 300.0), nearest=st.integers(0, 200))
def test_affinities_are_the_exponential_rounded_to_their_bits(bits: int, tau: float, nearest: int) -> None:
    u, e = leak_table(*leak_factor([tau]), nearest + 200)
    seen = read(u[0, nearest:], e[0, nearest:], np.asarray(e[0, nearest]), bits)
    ideal = np.exp(-np.arange(nearest, nearest + 200) / tau) * 2.0 ** (bits + int(e[0, nearest]))
    # What would round to 2**bits is held below it, and loses up to one unit.
    allowed = 0.5 + 2.0**bits * 2 * (nearest + 200) * LOSS_PER_STEP + 0.5 * (ideal > (1 << bits) - 1).any()
    assert np.abs(seen - ideal).max() <= allowed


@given(bits=st.integers(1, AFFINITY_BITS - 1), tau=st.floats(0.05, 1e3), nearest=st.integers(0, 300))
def test_a_narrow_affinity_is_the_membrane_rounded_once_and_not_the_wide_affinity_rounded_again(
    bits: int, tau: float, nearest: int
) -> None:
    u, e = leak_table(*leak_factor([tau]), nearest + 100)
    seen = read(u[0, nearest:], e[0, nearest:], np.asarray(e[0, nearest]), bits)
    for value, power, affinity in zip(u[0, nearest:].tolist(), e[0, nearest:].tolist(), seen.tolist(), strict=True):
        unit = Fraction(2) ** (32 - bits + power - int(e[0, nearest]))
        assert affinity == min(math.floor(Fraction(value) / unit + Fraction(1, 2)), (1 << bits) - 1)


@pytest.mark.parametrize("bits", [AFFINITY_BITS, 8, 3, 1])
def test_expanded_tables_hold_what_a_read_gives(bits: int) -> None:
    u, e = leak_table(*leak_factor([3.0, 17.5]), 90)
    (tables,) = affinity_tables([(u, e)], bits)
    row, table = tables.row_exponent, tables.table
    assert row.dtype == table.dtype == np.uint16
    for head in range(2):
        for nearest in range(90):
            expected = read(u[head, nearest:], e[head, nearest:], np.asarray(e[head, nearest]), bits)
            assert (table[head, row[head, nearest], nearest:] == expected).all()


@pytest.mark.parametrize("bits", [AFFINITY_BITS, 8, 1])
@pytest.mark.parametrize("tau", [1e-3, 0.9, 7.3, 40.0, 1000.0])
def test_the_nearest_key_of_every_row_uses_the_full_width_of_the_table(tau: float, bits: int) -> None:
    tables = tables_of([tau], 500, bits)
    nearest = tables.table[0, tables.row_exponent[0], np.arange(500)]
    assert nearest.min() >= 1 << (bits - 1)
    assert nearest.max() <= (1 << bits) - 1


def test_a_leak_too_fast_for_tables_is_refused_before_they_are_made() -> None:
    with pytest.raises(LapisError, match="too large"):
        affinity_tables([leak_table(*leak_factor([1e-4]), 9000)])


def test_the_fastest_leak_of_a_file_counts_its_halvings_without_wrapping() -> None:
    fastest = np.array([1 << 31], dtype=np.uint32), np.array([(1 << 20) - 1], dtype=np.int32)
    u, e = leak_table(*fastest, 4000)
    assert (e[0] == np.arange(4000) * (1 << 20) - 1).all()
    assert (u == 1 << 31).all()


def test_an_endless_time_constant_hardly_leaks() -> None:
    mantissa, exponent = leak_factor([1e30])
    assert (int(mantissa[0]), int(exponent[0])) == ((1 << 32) - 1, 0)


@pytest.mark.parametrize("tau", [0.0, -1.0, float("nan"), float("inf"), 1e-9])
def test_what_is_no_time_constant_is_refused(tau: float) -> None:
    with pytest.raises(LapisError, match="tau"):
        leak_factor([tau])


@given(tau=st.floats(1e-3, 1e6))
def test_a_time_constant_is_found_again_in_its_leak(tau: float) -> None:
    # One unit of the mantissa is 2**-31 of beta, and d(tau)/tau = tau d(beta)/beta.
    assert time_constant(*leak_factor([tau]))[0] == pytest.approx(tau, rel=2.0**-30 * max(tau, 1.0) + 1e-12)
