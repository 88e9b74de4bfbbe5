"""Laws of thresholds: a comparison gives the code that the formula gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapis.deploy import arithmetic, thresholds
from lapis.deploy.network import Layer, Readout
from lapis.deploy.thresholds import Grid, gelu, gelu_ladder

scales = st.floats(2.0**-20, 4.0, width=32)
shifts = st.floats(-40.0, 40.0, width=32)


def _layer(scale: float, shift: float) -> Layer:
    return Layer(
        np.ones((1, 1), dtype=np.int8), np.array([scale], dtype=np.float32), np.array([shift], dtype=np.float32)
    )


@given(scale=scales, shift=shifts, low=st.sampled_from([0, -15]))
def test_an_integer_threshold_is_where_the_code_changes(scale: float, shift: float, low: int) -> None:
    layer, level = _layer(scale, shift), np.arange(low + 1, 16)
    theta = thresholds.layer_thresholds(layer, low, 15)[0]
    inside = np.abs(theta) < arithmetic.EXACT_FLOAT32
    for total, reaches in ((theta, True), (theta - 1, False)):
        codes = arithmetic.floor_codes(arithmetic.affine(total, layer.scale, layer.shift), low, 15)
        assert ((codes >= level) == reaches)[inside].all()


@given(scale=st.floats(2.0**-6, 8.0, width=32), shift=shifts, exponent=st.integers(14, 25))
def test_a_readout_threshold_is_where_the_code_changes(scale: float, shift: float, exponent: int) -> None:
    readout = Readout(np.array(scale, dtype=np.float32), np.array(shift, dtype=np.float32))
    theta = thresholds.readout_thresholds(readout, -7, 7, range(14, 26))[exponent - 14]
    inside = np.abs(theta) < 1 << 31
    for total, reaches in ((theta, True), (theta - 1, False)):
        scaled = np.ldexp(total.astype(np.float32), -exponent)
        codes = arithmetic.floor_codes(arithmetic.affine(scaled, readout.scale, readout.shift), -7, 7)
        assert ((codes >= np.arange(-6, 8)) == reaches)[inside].all()


@given(
    step=st.floats(0.01, 0.5),
    offset=st.floats(-0.3, 0.1),
    low=st.sampled_from([0, -15]),
    u=st.lists(st.floats(-8.0, 8.0, width=32), min_size=1, max_size=40),
)
def test_the_ladder_is_gelu_and_its_quantizer(step: float, offset: float, low: int, u: list[float]) -> None:
    rise, fall = gelu_ladder(Grid(step, offset, low, 15))
    codes = arithmetic.ladder_codes(np.array(u, dtype=np.float32), rise, fall, low)
    for value, code in zip(u, codes, strict=True):
        exact = (gelu(value) - offset) / step + 0.5
        if abs(exact - round(exact)) > 1e-4:  # a level is rounded to float32 once
            assert code == min(max(math.floor(exact), low), 15)


def test_gelu_has_its_least_value_where_it_is_said_to_be() -> None:
    assert gelu(thresholds.GELU_BOTTOM) == pytest.approx(thresholds.GELU_LEAST, abs=1e-17)
    assert all(gelu(thresholds.GELU_BOTTOM + away) > thresholds.GELU_LEAST for away in (-1e-3, 1e-3))


@given(scale=st.floats(2.0**-12, 0.125, width=32), shift=st.floats(-2.0, 2.0, width=32), low=st.sampled_from([0, -5]))
def test_both_sides_of_the_ladder_are_integer_thresholds(scale: float, shift: float, low: int) -> None:
    layer = _layer(scale, shift)
    rise, fall = gelu_ladder(Grid(0.07, -0.05, low, 5))
    theta, phi = thresholds.ladder_thresholds(layer, rise, fall)
    total = np.arange(-3000, 3000)[:, None]
    reached = (total >= theta[0]) | (total < phi[0])
    codes = arithmetic.ladder_codes(arithmetic.affine(total[:, 0], layer.scale, layer.shift), rise, fall, low)
    assert (low + reached.sum(axis=1) == codes).all()
