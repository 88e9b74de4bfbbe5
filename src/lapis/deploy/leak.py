"""The affinity as an integer leak: beta**D by a recurrence of one multiplication per step, the same on every machine.

A membrane is a mantissa u in [2**31, 2**32) and an exponent e, worth u 2**-(32 + e). It starts at one (u = 2**31,
e = -1) and in each step is multiplied by beta = B 2**-(32 + b), B in [2**31, 2**32), dropping the lowest bits:

    p = u B                                  64 bits
    u, e = p >> 32, e + b                    where p >= 2**63
    u, e = p >> 31, e + b + 1                otherwise

So a table of affinities holds exactly what is left after D steps of leak. Reading a membrane with the gain 2**(a + r)
gives an affinity of a bits, A = min(floor(u 2**-(32 - a + e - r) + 1/2), 2**a - 1); a row takes the r of its nearest
key, whose affinity then lies in 2**(a - 1)..2**a - 1. The gain is an exact power of two and cancels in the scaled row,
whatever a is: fewer bits only round more, and drop keys that are less than half a unit.

A relation that does not decay by the same factor in every step is stored as its membranes, one per distance. They are
read in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lapis.codes import check_tau
from lapis.config import AFFINITY_BITS
from lapis.deploy.arithmetic import Int32, Int64
from lapis.errors import LapisError
from lapis.ops.integer_attention.reference import AffinityTables

MANTISSA_BITS = 32
MAX_SHIFT = 40  # from here on all 32 bits are zero
START_MANTISSA, START_EXPONENT = 1 << 31, -1
# The exponents of a stored membrane lie between -this and this; float64 reaches a thousandth of it.
MAX_EXPONENT = 1 << 20
# The largest number of entries of expanded tables where no network sets one: [H, R, S] grows with (S / tau)**2.
MAX_TABLE = 1 << 26
# The gains of a head are numbered in 16 bits.
MAX_GAINS = 1 << 16
# Entries that are computed at once, so that the 64-bit integers between need little memory.
SLICE_ENTRIES = 1 << 16

UInt32 = npt.NDArray[np.uint32]


def leak_factor(tau: npt.ArrayLike) -> tuple[UInt32, Int32]:
    """beta = exp(-1/tau) as (B, b), beta = B 2**-(32 + b) to the nearest; tau (H,) -> (H,), (H,)."""
    mantissas, exponents = [], []
    for value in check_tau(tau).reshape(-1):
        # exp may underflow for a tiny tau, so the power of two is separated first.
        doublings = -1.0 / float(value) / math.log(2.0)
        exponent = -math.floor(doublings) - 1
        mantissa = round(2.0 ** (doublings + exponent + 1) * 2.0**31)
        if mantissa >= 1 << 32:  # tau above 2**32 steps: the slowest leak that can be stored
            mantissa = (1 << 32) - 1
        if exponent >= MAX_EXPONENT:
            raise LapisError(f"tau={value} is too short a time constant to be stored; use at least 1e-5 steps")
        mantissas.append(mantissa)
        exponents.append(exponent)
    return np.array(mantissas, dtype=np.uint32), np.array(exponents, dtype=np.int32)


def time_constant(mantissa: UInt32, exponent: Int32) -> npt.NDArray[np.float64]:
    """tau with exp(-1/tau) = B 2**-(32 + b): the inverse of `leak_factor`, of any shape."""
    log_beta = np.log(mantissa.astype(np.float64)) - (MANTISSA_BITS + exponent) * math.log(2.0)
    return np.asarray(-1.0 / log_beta)


def trajectory(mantissa: UInt32, exponent: Int32) -> Iterator[tuple[npt.NDArray[np.uint64], Int64]]:
    """u and e (H,) after 0, 1, 2, ... steps, without end."""
    u, e = np.full(len(mantissa), START_MANTISSA, np.uint64), np.full(len(mantissa), START_EXPONENT, np.int64)
    big, b = mantissa.astype(np.uint64), exponent.astype(np.int64)
    while True:
        yield u, e
        product = u * big
        large = product >> np.uint64(63) != 0
        u, e = product >> np.where(large, np.uint64(32), np.uint64(31)), e + b + ~large


def membranes(log2_affinity: npt.ArrayLike) -> tuple[UInt32, Int32]:
    """u and e to the nearest of any falling affinity, from its logarithm to base 2: (H, S) -> (H, S), (H, S)."""
    logs = np.asarray(log2_affinity, dtype=np.float64)
    if not np.isfinite(logs).all() or float(np.abs(logs).max(initial=0.0)) >= MAX_EXPONENT:
        raise LapisError(f"log2 affinities must be finite and below {MAX_EXPONENT} in size, so that rows do not vanish")
    if (logs[:, 1:] > logs[:, :-1]).any():
        head, distance = (int(axis[0]) for axis in np.nonzero(logs[:, 1:] > logs[:, :-1]))
        raise LapisError(
            f"the affinity of head {head} rises from distance {distance} to {distance + 1}; it must never rise, "
            "because the nearest key of a row sets the gain at which the others are read"
        )
    whole = np.floor(logs)
    u = np.rint(np.exp2(logs - whole) * 2.0 ** (MANTISSA_BITS - 1))
    carried = u >= 2.0**MANTISSA_BITS
    exponent = -whole - 1 - carried
    return np.where(carried, START_MANTISSA, u).astype(np.uint32), exponent.astype(np.int32)


def leak_table(mantissa: UInt32, exponent: Int32, size: int, bits: int | None = None) -> tuple[UInt32, Int64]:
    """u and e after 0..size-1 steps: (H,), (H,) -> (H, size), (H, size).

    With `bits`, only up to the first step from which on every affinity of so many bits is 0 beside that of step 0.
    """
    heads = mantissa.shape[0]
    # The fastest leak passes 2**31 halvings within 2,048 steps.
    us, es = np.empty((size, heads), dtype=np.uint32), np.empty((size, heads), dtype=np.int64)
    for index, (u, e) in zip(range(size), trajectory(mantissa, exponent), strict=False):
        us[index], es[index] = u, e
        # u is below 2**32, so reading rounds it to 0 from a shift of 33 on.
        if bits is not None and int(e.min()) - START_EXPONENT + MANTISSA_BITS - bits > MANTISSA_BITS:
            us, es = us[: index + 1], es[: index + 1]
            break
    return np.ascontiguousarray(us.T), np.ascontiguousarray(es.T)


def read(u: npt.NDArray[Any], e: npt.NDArray[Any], gain: npt.NDArray[Any], bits: int = AFFINITY_BITS) -> Int64:
    """A = min(floor(u 2**-(32 - bits + e - r) + 1/2), 2**bits - 1), with the gain r of the row."""
    shift = np.clip(e.astype(np.int64) - gain + MANTISSA_BITS - bits, 1, MAX_SHIFT)
    return np.asarray(np.minimum((u.astype(np.int64) + (np.int64(1) << (shift - 1))) >> shift, (1 << bits) - 1))


def affinity_tables(
    membranes: Sequence[tuple[UInt32, Int64]], bits: int = AFFINITY_BITS, allowed: int = MAX_TABLE
) -> list[AffinityTables]:
    """The result of `read` at every distance and for every gain, from the membranes (H, S) of each block.

    A row's gain is the exponent of its nearest key, so the table has one row per exponent that a head's leak reaches:
    few for a slow leak, and never more than there are distances. The entries of all tables are counted before the first
    is built.
    """
    passed = [[np.unique(exponents, return_inverse=True) for exponents in es] for _, es in membranes]
    shapes = [
        (len(heads), max(len(gains) for gains, _ in heads), es.shape[1])
        for heads, (_, es) in zip(passed, membranes, strict=True)
    ]
    entries, widest = sum(map(math.prod, shapes)), max(shapes, key=math.prod)
    if entries > allowed or any(rows > MAX_GAINS for _, rows, _ in shapes):
        raise LapisError(
            f"affinity tables of {entries} entries are too large, at most {allowed} are possible; distances up to "
            f"{widest[2] - 1} pass through {widest[1]} halvings, so use a longer time constant or shorter delays"
        )
    return [_affinity_table(us, es, gains, bits) for (us, es), gains in zip(membranes, passed, strict=True)]


def _affinity_table(us: UInt32, es: Int64, passed: Sequence[tuple[Int64, Any]], bits: int) -> AffinityTables:
    heads, size = es.shape
    table = np.zeros((heads, max(len(gains) for gains, _ in passed), size), dtype=np.uint16)
    rows = max(1, SLICE_ENTRIES // size)
    for head, (gains, _) in enumerate(passed):
        for first in range(0, len(gains), rows):
            # A row is never read below its nearest key; those entries stay at the maximum.
            table[head, first : min(first + rows, len(gains))] = read(
                us[head], es[head], gains[first : first + rows, None], bits
            )
    return AffinityTables(table, np.stack([row.astype(np.uint16) for _, row in passed]))


def first_row(us: UInt32, es: Int64, bits: int) -> AffinityTables:
    """The tables of a relation whose nearest key always is at distance 0: one row, with that key's gain."""
    return AffinityTables(read(us, es, es[:, :1], bits)[:, None].astype(np.uint16), np.zeros(es.shape, np.uint16))
