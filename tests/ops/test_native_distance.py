"""Distances of the native library equal the reference, integer for integer, on every instruction set."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks import native_ops as native
from lapis.errors import LapisError
from lapis.ops.distance import reference

from .shapes import SHAPES, codes

Case = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]
# The fixture only selects an instruction set, which examples may share.
SHARED_FIXTURE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


@cache
def case(shape: tuple[int, int, int, int]) -> Case:
    n, m, c, window = shape
    q, k = codes(n, (2, n, c), window), codes(m + 1, (2, m, c), window)
    return q, k, reference.l1_distance(q, k), reference.hamming_distance(q, k)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_distance_equals_the_reference(isa: str, shape: tuple[int, int, int, int]) -> None:
    q, k, expected, differing = case(shape)
    assert np.array_equal(native.l1_distance(q, k), expected)
    assert np.array_equal(native.l1_distance_float(q.astype(np.float32), k.astype(np.float32)), expected)
    assert np.array_equal(native.hamming_distance(q, k), differing)


@pytest.mark.parametrize("window", [15, 63, 127, 255])
@pytest.mark.parametrize(("left", "right"), [(0, 0), (1, 1), (0, 1), (1, 0)])
def test_silence_and_full_windows_are_exact(isa: str, window: int, left: int, right: int) -> None:
    q, k = np.full((17, 80), left * window, np.uint8), np.full((33, 80), right * window, np.uint8)
    expected = 80 * window * (left != right)
    assert (native.l1_distance(q, k) == expected).all()
    assert (native.l1_distance_float(q.astype(np.float32), k.astype(np.float32)) == expected).all()


@SHARED_FIXTURE
@given(
    n=st.integers(1, 40),
    m=st.integers(1, 40),
    c=st.integers(1, 140),
    window=st.integers(1, 255),
    seed=st.integers(0, 99),
)
def test_any_shape_and_window_is_exact(isa: str, n: int, m: int, c: int, window: int, seed: int) -> None:
    q, k = codes(seed, (n, c), window), codes(seed + 1, (m, c), window)
    assert np.array_equal(native.l1_distance(q, k), reference.l1_distance(q, k))
    assert np.array_equal(native.hamming_distance(q, k), reference.hamming_distance(q, k))


def test_codes_of_many_channels_do_not_overflow_a_byte_or_a_word(isa: str) -> None:
    q, k = np.full((3, 5000), 255, np.uint8), np.zeros((20, 5000), np.uint8)
    assert (native.l1_distance(q, k) == 255 * 5000).all()
    assert (native.l1_distance(q, q) == 0).all()


def test_unaligned_and_strided_views_need_no_copy_and_change_nothing(isa: str) -> None:
    buffer = codes(0, (2 * 19 * 3 * 40 + 1,), 15)
    joined = buffer[1:].reshape(2, 19, 3, 40)  # starts on an odd address; (B, N, H, C) seen as (B, H, N, C)
    q = joined.transpose(0, 2, 1, 3)
    every_other = codes(1, (2, 3, 38, 40), 15)[:, :, ::2]
    assert np.array_equal(native.l1_distance(q, every_other), reference.l1_distance(q, every_other))
    floats = q.astype(np.float32)
    view = np.ascontiguousarray(floats.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    assert np.array_equal(native.l1_distance_float(view, floats), reference.l1_distance(q, q))


def test_channels_that_are_not_contiguous_are_copied(isa: str) -> None:
    q = codes(0, (5, 17, 23), 15).swapaxes(1, 2)
    assert np.array_equal(native.l1_distance(q, q), reference.l1_distance(q, q))


def test_signed_codes_have_the_distance_of_shifted_ones(isa: str) -> None:
    q, k = codes(0, (3, 9, 33), 40).astype(np.float32) - 20, codes(1, (3, 11, 33), 40).astype(np.float32) - 20
    assert np.array_equal(native.l1_distance_float(q, k), reference.l1_distance(q.astype(int), k.astype(int)))


@pytest.mark.parametrize("bad", [0.5, np.nan, np.inf, 256.0, -256.0, 1e30])
def test_float_codes_that_are_no_codes_are_refused(isa: str, bad: float) -> None:
    q = np.zeros((4, 33), np.float32)
    k = q.copy()
    k[3, 32] = bad
    with pytest.raises(LapisError, match="codes must be integers"):
        native.l1_distance_float(q, k)


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_threads_change_nothing(isa: str, threads: int) -> None:
    q, k = codes(0, (1, 211, 64), 15), codes(1, (1, 197, 64), 15)
    assert np.array_equal(native.l1_distance(q, k, threads=threads), native.l1_distance(q, k))
    many = codes(2, (40, 60, 64), 15)
    assert np.array_equal(native.l1_distance(many, many, threads=threads), native.l1_distance(many, many))


def test_empty_arrays_give_empty_distances(isa: str) -> None:
    assert native.l1_distance(np.zeros((0, 4), np.uint8), np.zeros((3, 4), np.uint8)).shape == (0, 3)
    assert native.l1_distance(np.zeros((2, 0, 5, 4), np.uint8), np.zeros((2, 0, 3, 4), np.uint8)).shape == (2, 0, 5, 3)


@pytest.mark.parametrize("wrong", [np.zeros((3, 4)), np.full((3, 4), 300), np.full((3, 4), -1)])
def test_codes_of_a_wrong_kind_are_refused(isa: str, wrong: Any) -> None:
    with pytest.raises(LapisError, match="codes"):
        native.l1_distance(wrong, np.zeros((3, 4), np.uint8))
