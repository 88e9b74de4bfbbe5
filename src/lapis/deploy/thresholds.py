"""Thresholds of spiking neurons: the smallest sum that reaches each code, found exactly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lapis.deploy import arithmetic
from lapis.deploy.arithmetic import Array, Float32
from lapis.deploy.network import Layer, Readout

# Sums that a neuron can hold: a linear layer's stay within float32's integers, the value path's within int32.
LINEAR_RANGE = (-arithmetic.EXACT_FLOAT32, arithmetic.EXACT_FLOAT32)
VALUE_RANGE = (-(1 << 31), 1 << 31)


def layer_thresholds(layer: Layer, low: int, high: int) -> Array:
    """theta[o][m - low - 1] = the smallest sum whose code is at least m, m = low+1..high: (O, levels)."""
    shape = (layer.scale.shape[0], high - low)
    level = np.arange(low + 1, high + 1, dtype=np.float32)

    def reached(total: Array) -> Array:
        return arithmetic.affine(total, layer.scale[:, None], layer.shift[:, None]) >= level

    return least_reaching(reached, shape, LINEAR_RANGE)


def ladder_thresholds(layer: Layer, rise: Float32, fall: Float32) -> tuple[Array, Array]:
    """(theta, phi) (O, levels): a code reaches level m iff its sum is >= theta[o][m] or < phi[o][m]."""
    shape = (layer.scale.shape[0], rise.shape[0])

    def pre(total: Array) -> Float32:
        return arithmetic.affine(total, layer.scale[:, None], layer.shift[:, None])

    theta = least_reaching(lambda total: pre(total) >= rise, shape, LINEAR_RANGE)
    phi = least_reaching(lambda total: pre(total) > fall, shape, LINEAR_RANGE)
    return theta, phi


def readout_thresholds(readout: Readout, low: int, high: int, exponents: range) -> Array:
    """theta[k][m] = the smallest sum whose code is at least m in a row scaled by 2**-k: (exponents, levels)."""
    level = np.arange(low + 1, high + 1, dtype=np.float32)
    k = np.array(exponents)[:, None]

    def reached(total: Array) -> Array:
        scaled = np.ldexp(total.astype(np.float32), -k)
        return arithmetic.affine(scaled, readout.scale, readout.shift) >= level

    return least_reaching(reached, (len(exponents), high - low), VALUE_RANGE)


def least_reaching(reached: Callable[[Array], Array], shape: tuple[int, ...], bounds: tuple[int, int]) -> Array:
    """The smallest integer x of `bounds` with reached(x), by bisection; its end if none reaches.

    The condition must stay true for larger x.
    """
    below = np.full(shape, bounds[0] - 1, dtype=np.int64)
    above = np.full(shape, bounds[1], dtype=np.int64)
    while (open_ := above - below > 1).any():
        middle = (below + above) >> 1
        # A sum that no input gives may overflow; infinity compares as it should.
        with np.errstate(over="ignore"):
            yes = reached(np.maximum(middle, bounds[0]))
        above, below = np.where(open_ & yes, middle, above), np.where(open_ & ~yes, middle, below)
    return above
