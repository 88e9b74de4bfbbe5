"""What conversion computes once: scales and biases folded together, GELU as levels, integer thresholds for neurons."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lapis.convert import arithmetic
from lapis.convert.arithmetic import Array, Float32
from lapis.convert.network import Layer, Readout
from lapis.errors import LapisError

Float64 = npt.NDArray[np.float64]

# Where GELU is least, and its value there.
GELU_BOTTOM = -0.7517915246935645
GELU_LEAST = -0.16997120747990369
# Sums that a neuron can hold: a linear layer's stay within float32's integers, the value path's within int32.
LINEAR_RANGE = (-arithmetic.EXACT_FLOAT32, arithmetic.EXACT_FLOAT32)
VALUE_RANGE = (-(1 << 31), 1 << 31)


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

    A level that GELU never goes under is always reached; a level of at least 0 is never reached from below.
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
    """theta[o][m - low - 1] = the least sum whose code is at least m, m = low+1..high: (O, levels)."""
    shape = (layer.scale.shape[0], high - low)
    level = np.arange(low + 1, high + 1, dtype=np.float32)

    def reached(total: Array) -> Array:
        return arithmetic.affine(total, layer.scale[:, None], layer.shift[:, None]) >= level

    return least_reaching(reached, shape, layer.exact, LINEAR_RANGE)


def ladder_thresholds(layer: Layer, rise: Float32, fall: Float32) -> tuple[Array, Array]:
    """(theta, phi) (O, levels): a code reaches level m iff its sum is >= theta[o][m] or < phi[o][m]."""
    shape = (layer.scale.shape[0], rise.shape[0])

    def pre(total: Array) -> Float32:
        return arithmetic.affine(total, layer.scale[:, None], layer.shift[:, None])

    theta = least_reaching(lambda total: pre(total) >= rise, shape, layer.exact, LINEAR_RANGE)
    phi = least_reaching(lambda total: pre(total) > fall, shape, layer.exact, LINEAR_RANGE)
    return theta, phi


def readout_thresholds(readout: Readout, low: int, high: int, exponents: range) -> Array:
    """theta[k][m] = the least sum whose code is at least m in a row scaled by 2**-k: (exponents, levels)."""
    level = np.arange(low + 1, high + 1, dtype=np.float32)
    k = np.array(exponents)[:, None]

    def reached(total: Array) -> Array:
        scaled = np.ldexp(total.astype(np.float32), -k)
        return arithmetic.affine(scaled, readout.scale, readout.shift) >= level

    return least_reaching(reached, (len(exponents), high - low), True, VALUE_RANGE)


def least_reaching(
    reached: Callable[[Array], Array], shape: tuple[int, ...], exact: bool, bounds: tuple[int, int]
) -> Array:
    """The least x with reached(x), for a condition that stays true once it is: exact, by bisection on the condition.

    Over integers of `bounds` (its end where none reaches), or over all finite float32 in their order of size.
    """
    number: Callable[[Array], Array] = (lambda key: key) if exact else _float_of_key
    ends = bounds if exact else (-_LARGEST_KEY, _LARGEST_KEY)
    below = np.full(shape, ends[0] - 1, dtype=np.int64)
    above = np.full(shape, ends[1], dtype=np.int64)
    while (open_ := above - below > 1).any():
        middle = (below + above) >> 1
        yes = reached(number(np.maximum(middle, ends[0])))
        above, below = np.where(open_ & yes, middle, above), np.where(open_ & ~yes, middle, below)
    return number(above)


_LARGEST_KEY = 0x7F7FFFFF


def _float_of_key(key: Array) -> Array:
    """Integers -0x7f7fffff..0x7f7fffff to the finite float32 of the same order; 0 is 0."""
    magnitude = np.abs(key).astype(np.uint32).view(np.float32)
    return np.where(key < 0, -magnitude, magnitude)


def fixed_point(values: Float64, bits: Any, limit: int, what: str) -> npt.NDArray[np.int64]:
    """floor(values 2**bits + 1/2), within -limit..limit or an error."""
    scaled = np.floor(np.ldexp(values, bits) + 0.5)
    if not np.isfinite(scaled).all() or float(np.abs(scaled).max(initial=0.0)) > limit:
        raise LapisError(f"{what} reaches {float(np.abs(values).max()):.6g}, beyond the deployed fixed point")
    return np.asarray(scaled, dtype=np.int64)
