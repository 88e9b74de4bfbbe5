"""Laws of the 6-bit packing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from lapis.errors import LapisError
from lapis.ops.packing import pack6, packed_width, unpack6


@given(arrays(np.int8, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=13), elements=st.integers(-31, 31)))
def test_unpacking_gives_back_what_was_packed(weights: npt.NDArray[np.int8]) -> None:
    packed = pack6(weights)
    assert packed.shape == (weights.shape[0], packed_width(weights.shape[1]))
    unpacked = unpack6(packed, weights.shape[1])
    assert unpacked.dtype == np.int8
    assert (unpacked == weights).all()


def test_the_bit_order_is_the_one_documented() -> None:
    # 1, 2, 3, -1 as 1 + 2*64 + 3*64**2 + 63*64**3 = 0xFC3081, least byte first.
    assert pack6(np.array([[1, 2, 3, -1]])).tolist() == [[0x81, 0x30, 0xFC]]


def test_one_row_has_one_packed_form() -> None:
    with pytest.raises(LapisError, match="-32"):
        unpack6(np.array([[0x20, 0, 0]], dtype=np.uint8), 4)
    with pytest.raises(LapisError, match="padding"):
        unpack6(np.array([[0, 0, 4]], dtype=np.uint8), 3)


def test_what_does_not_fit_six_bits_is_refused() -> None:
    for bad in (np.array([[32]]), np.array([[-32]]), np.array([1]), np.array([[0.5]])):
        with pytest.raises(LapisError):
            pack6(bad)
    with pytest.raises(LapisError, match="expected bytes"):
        unpack6(np.zeros((1, 4), dtype=np.uint8), 4)
