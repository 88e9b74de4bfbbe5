"""Laplacian attention in integers: a fixed-point table of affinities, integer row sums, integer value sums.

The executors of a deployed network all mean this arithmetic, so it is exact: every variant compares with `==`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lapis.codes import check_tau, round_half_up
from lapis.errors import LapisError
from lapis.ops.l1_distance.reference import l1_distance
from lapis.ops.shapes import check_values

# The affinity of a row's nearest key lies in [2**14, 2**15): it fits int16, and loses no more than 2**-15 of itself.
FRACTION_BITS = 15
LARGEST_AFFINITY = (1 << FRACTION_BITS) - 1
INT32_LIMIT = 1 << 31
# 256 MB of u16: far above any network of ours, far below what a bad tau could ask for.
LARGEST_TABLES = 1 << 27


@dataclass(frozen=True)
class FixedPointTables:
    """table[h][r][D] = min(floor(exp(-D/tau_h) 2**(15+r) + 1/2), 32767), u16 (H, R, S).

    row_exponent[h][d] = the r with exp(-d/tau_h) 2**r in [1/2, 1), so that the nearest key of a row, at distance d,
    has an affinity in [2**14, 2**15). u16 (H, S). At d = 0, r = 0 and the affinity of one is cut to 32767 / 2**15.
    """

    table: npt.NDArray[np.uint16]
    row_exponent: npt.NDArray[np.uint16]


def fixed_point_tables(tau: npt.ArrayLike, size: int) -> FixedPointTables:
    """The tables of heads tau (H,) for total distances 0..size-1."""
    heads = np.atleast_1d(check_tau(tau))
    if size < 1:
        raise LapisError(f"a table of {size} distances was asked; it needs at least one, for D = 0")
    log2 = -np.arange(size) / (heads[:, None] * np.log(2.0))  # log2 of exp(-d/tau), (H, S)
    # exp(-d/tau) 2**r in [1/2, 1): r = -floor(log2) - 1, and 0 for d = 0, where the affinity is exactly one.
    exponent = np.maximum(-np.floor(log2) - 1, 0)
    exponents = int(exponent.max()) + 1
    if heads.size * exponents * size > LARGEST_TABLES:
        raise LapisError(
            f"tau={heads.min()} over {size} distances needs {exponents} row exponents, tables of "
            f"{heads.size * exponents * size} entries; at most {LARGEST_TABLES} are allowed, so use a larger tau"
        )
    power = log2[:, None, :] + np.arange(exponents)[:, None] + FRACTION_BITS
    # Entries far above the cut belong to rows that never meet them; they must only not overflow.
    entries = np.minimum(round_half_up(np.exp2(np.minimum(power, 2.0 * FRACTION_BITS))), LARGEST_AFFINITY)
    return FixedPointTables(entries.astype(np.uint16), exponent.astype(np.uint16))


def integer_attention(
    q_codes: npt.ArrayLike,
    k_codes: npt.ArrayLike,
    v_codes: npt.ArrayLike,
    tables: FixedPointTables,
    delay: npt.ArrayLike | None = None,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32]]:
    """r_i = row_exponent[h][min_j D_ij], A_ij = table[h][r_i][D_ij], zint_i = sum_j A_ij, acc_ic = sum_j A_ij v_jc.

    q, k (..., H, N, C), v (..., H, M, C) integers 0..255, delay (H, N, M)  ->  acc (..., H, N, C) int32 and
    zint (..., H, N) uint32. The power-of-two readout is acc * 2**-pow2_exponent(zint), whatever r was: both carry
    2**(15+r).
    """
    distance = l1_distance(q_codes, k_codes)
    v = np.asarray(v_codes).astype(np.int64)
    check_values(np.shape(k_codes), v.shape)
    if delay is not None:
        distance = distance + np.asarray(delay).astype(np.int64)
    check_accumulator(v.shape[-2], int(v.max(initial=0)))
    check_distance(distance, tables)
    head = np.arange(tables.table.shape[0])[:, None]
    exponent = tables.row_exponent[head, distance.min(axis=-1)]
    affinity = tables.table[head[..., None], exponent[..., None], distance].astype(np.int64)
    return (affinity @ v).astype(np.int32), affinity.sum(axis=-1).astype(np.uint32)


def check_accumulator(keys: int, largest_value: int) -> None:
    """Refuse shapes at which an int32 sum could overflow."""
    if keys * LARGEST_AFFINITY * max(largest_value, 1) >= INT32_LIMIT:
        most = (INT32_LIMIT - 1) // (LARGEST_AFFINITY * max(largest_value, 1))
        raise LapisError(
            f"{keys} keys with values up to {largest_value} could overflow an int32 sum; use at most {most} keys"
        )


def check_distance(distance: npt.NDArray[np.int64], tables: FixedPointTables) -> None:
    """Refuse distances outside the tables."""
    size = tables.table.shape[2]
    if distance.size and (int(distance.max()) >= size or int(distance.min()) < 0):
        raise LapisError(
            f"distances span {int(distance.min())}..{int(distance.max())}, the tables end at {size - 1}; "
            "build them for C * T plus the largest delay"
        )
