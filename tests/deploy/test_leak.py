"""Laws of the integer leak."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapis.deploy.leak import affinity_tables, leak_factor, leak_table, read, tables_of, time_constant
from lapis.errors import LapisError
from lapis.ops.integer_attention.reference import AFFINITY_MAX

# Truncating a mantissa of at least 2**31 loses less than 2**-31 of it a step, and so does rounding beta.
LOSS_PER_STEP = 2.0**-31


@given(tau=st.floats(1e-3, 1e6), size=st.integers(1, 600))
def test_the_leak_follows_the_exponential_at_any_distance(tau: float, size: int) -> None:
    u, e = leak_table(*leak_factor([tau]), size)
    ours = np.log(u[0].astype(np.float64)) - (32 + e[0]) * np.log(2.0)
    distance = np.arange(size)
    # The comparison itself is in float64: its logarithms carry an error relative to their size.
    assert np.abs(ours + distance / tau).max() <= 2 * size * LOSS_PER_STEP + 1e-14 * size / tau


@given(tau=st.floats(0.05, 1e3), nearest=st.integers(0, 300), farther=st.integers(0, 300))
def test_the_nearest_key_of_a_row_reads_15_bits_and_farther_keys_less(tau: float, nearest: int, farther: int) -> None:
    u, e = leak_table(*leak_factor([tau]), nearest + farther + 1)
    gain = e[0, nearest]
    first = int(read(u[0, nearest], e[0, nearest], gain))
    assert 1 << 14 <= first <= AFFINITY_MAX
    assert 0 <= int(read(u[0, nearest + farther], e[0, nearest + farther], gain)) <= first


@given(tau=st.floats(2.0, 300.0), nearest=st.integers(0, 200))
def test_affinities_are_the_exponential_rounded_to_15_bits(tau: float, nearest: int) -> None:
    u, e = leak_table(*leak_factor([tau]), nearest + 200)
    seen = read(u[0, nearest:], e[0, nearest:], np.asarray(e[0, nearest]))
    ideal = np.exp(-np.arange(nearest, nearest + 200) / tau) * 2.0 ** (15 + int(e[0, nearest]))
    assert (
        np.abs(seen - ideal).max() <= 0.5 + 2.0**15 * 2 * (nearest + 200) * LOSS_PER_STEP + (ideal > AFFINITY_MAX).any()
    )


def test_expanded_tables_hold_what_a_read_gives() -> None:
    u, e = leak_table(*leak_factor([3.0, 17.5]), 90)
    (tables,) = affinity_tables([(u, e)])
    row, table = tables.row_exponent, tables.table
    assert row.dtype == table.dtype == np.uint16
    for head in range(2):
        for nearest in range(90):
            expected = read(u[head, nearest:], e[head, nearest:], np.asarray(e[head, nearest]))
            assert (table[head, row[head, nearest], nearest:] == expected).all()


@pytest.mark.parametrize("tau", [1e-3, 0.9, 7.3, 40.0, 1000.0])
def test_the_nearest_key_of_every_row_uses_the_full_width_of_the_table(tau: float) -> None:
    tables = tables_of([tau], 500)
    nearest = tables.table[0, tables.row_exponent[0], np.arange(500)]
    assert nearest.min() >= 1 << 14
    assert nearest.max() <= AFFINITY_MAX


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
