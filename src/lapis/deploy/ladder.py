"""GELU and the quantizer after it as a list of comparisons, so that GELU is not computed after training."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lapis.deploy import arithmetic
from lapis.deploy.arithmetic import Float32

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


def ladder_grid(rise: Float32, low: int, fixed_origin: bool) -> Grid:
    """The quantizer that a ladder was made from: gelu(rise[m]) = (m - 1/2) s + o, o = 0 where the origin is fixed.

    Levels below the minimum of GELU do not depend on the step and are left out.
    """
    levels = np.arange(low + 1, low + 1 + len(rise)) - 0.5
    informative = rise > np.float32(GELU_BOTTOM)
    values = np.array([gelu(float(u)) for u in rise[informative]])
    levels, high = levels[informative], low + len(rise)
    if fixed_origin:
        return Grid(float((values * levels).sum() / (levels * levels).sum()), 0.0, low, high)
    if len(values) >= 2:
        step, offset = (float(part) for part in np.polyfit(levels, values, 1))
        return Grid(step, offset, low, high)
    # One level, or none, leaves the step free: any step that puts the levels where they are is right.
    return Grid(1.0, float(values[0] - levels[0]) if len(values) else GELU_LEAST - high, low, high)


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
