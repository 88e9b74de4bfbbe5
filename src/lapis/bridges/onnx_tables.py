"""Tables with which an ONNX graph repeats the deployed arithmetic in 32 bits, exactly.

A table replaces what standard operators do slowly (a ladder of comparisons, a distance of codes) or only in more bits
(the leak's mantissas).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lapis.config import AFFINITY_BITS
from lapis.deploy import arithmetic, leak
from lapis.deploy.arithmetic import Codes, Float32

# Cells of a table that finds a level; with so many, two levels of a trained network hardly ever share one.
CELLS = 1 << 10
# The bits of a mantissa that an affinity needs: one more than the widest affinity has.
TOP_BITS = AFFINITY_BITS + 1
# An affinity is 0 where its exponent is so much larger than that of the nearest key, whatever its width.
VANISHED = AFFINITY_BITS + 3


@dataclass(frozen=True)
class Ladder:
    """A step function of x by table: cell = clamp(fl(fl(x factor) + offset), 0, CELLS - 1), without its fraction, then

    code = codes[cell][number of i with x >= edges[i][cell]].

    Rounding never changes the order of two numbers, so an edge in a lower cell than x is below x, and one in a higher
    cell above it; only the edges in the cell of x itself are compared. edges (K, CELLS), codes (CELLS, K + 1).
    """

    factor: np.float32
    offset: np.float32
    edges: Float32
    codes: Codes

    def cell(self, x: Float32) -> npt.NDArray[np.int64]:
        return np.asarray(np.clip(x * self.factor + self.offset, 0, CELLS - 1).astype(np.int64))


def ladder(rise: Float32, fall: Float32, low: int, min_code: int) -> Ladder:
    """The comparisons of `arithmetic.ladder_codes` as a table."""
    # x <= level is the opposite of x >= the next float32, so that all edges are of one kind.
    falling = np.nextafter(fall[fall != arithmetic.LOWEST], np.float32(np.inf), dtype=np.float32)
    edges = np.unique(np.concatenate([rise, falling]))
    inside = edges[np.abs(edges) < np.float32(1e30)]
    first, last = (float(inside[0]), float(inside[-1])) if len(inside) else (0.0, 0.0)
    # Not below a thousandth, so that the product with the largest result of a layer, 1e30, is finite.
    factor = np.float32((CELLS - 3) / max(last - first, 1e-3))
    offset = np.float32(1.5 - first * float(factor))
    found = Ladder(factor, offset, edges, edges.astype(np.int8))
    cells = found.cell(edges)
    most = int(np.bincount(cells, minlength=1).max())
    # The codes below all edges, and from each edge on.
    levels = np.concatenate([[np.float32(-np.inf)], edges]).astype(np.float32)
    values = arithmetic.ladder_codes(levels, rise, fall, low, min_code)
    table_edges = np.full((most, CELLS), np.inf, dtype=np.float32)
    table_codes = np.empty((CELLS, most + 1), dtype=np.int8)
    for cell in range(CELLS):
        below, own = int((cells < cell).sum()), np.nonzero(cells == cell)[0]
        table_edges[: len(own), cell] = edges[own]
        table_codes[cell] = values[below + np.minimum(np.arange(most + 1), len(own))]
    return Ladder(factor, offset, table_edges, table_codes)


def thermometer(levels: int) -> Codes:
    """Row z, z = 0..levels: +1 z times, then -1. Two rows differ in as many places as their codes are apart."""
    return np.where(np.arange(levels) < np.arange(levels + 1)[:, None], 1, -1).astype(np.int8)


def affinity_parts(u: npt.NDArray[np.uint32], e: npt.NDArray[np.int64]) -> tuple[Float32, Float32]:
    """Mantissas of 16 bits and exponents by distance (H, S): A = floor(m 2**-(16 - bits + e - nearest e) + 1/2).

    This is `leak.read`, whose shift is at least 17: the lowest 16 bits of u never count. Exponents are brought closer
    together where they are more than `VANISHED` apart, so that float32 holds them all exactly.
    """
    steps = np.minimum(np.diff(e, axis=1, prepend=e[:, :1]), VANISHED)
    mantissa = u >> np.uint32(leak.MANTISSA_BITS - TOP_BITS)
    return mantissa.astype(np.float32), np.cumsum(steps, axis=1).astype(np.float32)


def mass_edges(tokens: int, bits: int) -> npt.NDArray[np.int32]:
    """The masses from which on one more halving is needed, up to that of a row with `tokens` largest affinities.

    mass >= 2**(k - 1/2) rounded up, for k = bits and on: the mass of a row is at least 2**(bits - 1).
    """
    edges, k = [], bits
    # isqrt(n - 1) + 1 is the root of n, rounded up.
    while (edge := math.isqrt((1 << (2 * k - 1)) - 1) + 1) <= min(tokens * ((1 << bits) - 1), (1 << 31) - 1):
        edges.append(edge)
        k += 1
    return np.array(edges, dtype=np.int32)
