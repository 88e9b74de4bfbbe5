"""Codes as comparisons: the levels of an activation function and its quantizer, and the sums that reach each code.

After training no activation function is computed. Its quantizer is a list of levels, and a spiking neuron compares its
membrane with thresholds: the smallest sums that reach each code, found exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lapis.config import Activation
from lapis.deploy import arithmetic
from lapis.deploy.arithmetic import Array, Float32
from lapis.deploy.network import Layer, Readout

# Sums that a neuron can hold: a linear layer's stay within float32's integers, the value path's within int32.
LINEAR_RANGE = (-arithmetic.EXACT_FLOAT32, arithmetic.EXACT_FLOAT32)
VALUE_RANGE = (-(1 << 31), 1 << 31)

# The minimum of GELU: where it is, and its value.
GELU_BOTTOM = -0.7517915246935645
GELU_LEAST = -0.16997120747990369


@dataclass(frozen=True)
class Grid:
    """A quantizer: the value of the code z is z step + offset, low <= z <= high."""

    step: float
    offset: float
    low: int
    high: int


def gelu(u: float) -> float:
    """u Phi(u), with the error function."""
    return 0.5 * u * math.erfc(-u / math.sqrt(2.0))


def gelu_ladder(grid: Grid) -> tuple[Float32, Float32]:
    """rise[m], fall[m] for m = low+1..high: gelu(u) >= (m - 1/2) s + o  iff  u >= rise[m] or u <= fall[m].

    A level below the minimum of GELU is always reached; a level of at least 0 is not reached by any u below zero.
    """
    rise, fall = [], []
    for m in range(grid.low + 1, grid.high + 1):
        level = (m - 0.5) * grid.step + grid.offset
        if level <= GELU_LEAST:
            rise.append(GELU_BOTTOM)
            fall.append(GELU_BOTTOM)
            continue
        rise.append(_solve(level, GELU_BOTTOM, max(level, 0.0) + 1.0))
        fall.append(_solve(level, GELU_BOTTOM, -64.0) if level < -1e-30 else float(arithmetic.LOWEST))
    return np.array(rise, dtype=np.float32), np.array(fall, dtype=np.float32)


def relu_ladder(grid: Grid) -> tuple[Float32, Float32]:
    """The same for max(u, 0): a level of at most 0 is always reached, one above by u >= level."""
    levels = (np.arange(grid.low + 1, grid.high + 1) - 0.5) * grid.step + grid.offset
    rise = np.maximum(levels, 0.0).astype(np.float32)
    return rise, np.where(levels <= 0, np.float32(0), arithmetic.LOWEST)


LADDERS: dict[Activation, Callable[[Grid], tuple[Float32, Float32]]] = {"gelu": gelu_ladder, "relu": relu_ladder}


def ladder_grid(rise: Float32, low: int, fixed_origin: bool, activation: Activation = "gelu") -> Grid:
    """The quantizer that a ladder was made from: f(rise[m]) = (m - 1/2) s + o, o = 0 where the origin is fixed.

    Levels below the minimum of f do not depend on the step and are left out.
    """
    function, bottom, least = _FUNCTIONS[activation]
    levels = np.arange(low + 1, low + 1 + len(rise)) - 0.5
    informative = rise > np.float32(bottom)
    values = np.array([function(float(u)) for u in rise[informative]])
    levels, high = levels[informative], low + len(rise)
    if fixed_origin:
        return Grid(float((values * levels).sum() / (levels * levels).sum()), 0.0, low, high)
    if len(values) >= 2:
        step, offset = (float(part) for part in np.polyfit(levels, values, 1))
        return Grid(step, offset, low, high)
    # One level, or none, leaves the step free: any step that puts the levels where they are is right.
    return Grid(1.0, float(values[0] - levels[0]) if len(values) else least - high, low, high)


# f, where its minimum is, and the value there; ReLU has its minimum everywhere below 0.
_FUNCTIONS: dict[Activation, tuple[Callable[[float], float], float, float]] = {
    "gelu": (gelu, GELU_BOTTOM, GELU_LEAST),
    "relu": (lambda u: max(u, 0.0), 0.0, 0.0),
}


def _solve(level: float, below: float, above: float) -> float:
    """The u between `below`, where gelu(u) <= level, and `above`, where it is more, by bisection to the last bit."""
    while True:
        middle = 0.5 * (below + above)
        if middle in (below, above):
            return above
        if gelu(middle) < level:
            below = middle
        else:
            above = middle


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
