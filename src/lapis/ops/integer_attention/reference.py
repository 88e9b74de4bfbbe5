"""Attention in integers: a fixed-point table of affinities, integer row sums, integer value sums.

This is the attention of a deployed network: every executor calls it or must equal it, so variants compare with `==`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from lapis._util.locks import blas_section
from lapis.codes import check_integers
from lapis.config import AFFINITY_BITS
from lapis.errors import LapisError
from lapis.ops.arrays import check_values
from lapis.ops.distance.reference import dot_distance, l1_distance
from lapis.relations import Comparison

# The largest affinity of any network; that of a row's nearest key lies in 2**(bits - 1)..2**bits - 1.
AFFINITY_MAX = (1 << AFFINITY_BITS) - 1
INT32_LIMIT = 1 << 31


@dataclass(frozen=True)
class AffinityTables:
    """A = table[h][row_exponent[h][d]][D] at distance D in a row whose nearest key is at distance d.

    table (H, R, S) in 0..32767 and row_exponent (H, S) in 0..R-1, S distances and R row exponents; u16 arrays, or
    tensors of the same numbers. `lapis.deploy.leak` builds them.
    """

    table: Any
    row_exponent: Any


def integer_attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    tables: AffinityTables,
    delay: ArrayLike | None = None,
    compared_by: Comparison = "l1",
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32]]:
    """r_i = row_exponent[h][min_j D_ij], A_ij = table[h][r_i][D_ij], Z_i = sum_j A_ij, acc_ic = sum_j A_ij v_jc.

    q, k (..., H, N, C), v (..., H, M, C') integers, delay (H, N, M)  ->  acc (..., H, N, C') int32 and
    Z (..., H, N) uint32. The power-of-two readout is acc * 2**-round(log2 Z), whatever r was: both carry its gain.
    Compared by dot products, a row has a key at distance 0, and distances beyond a table are read at its end.
    """
    distance_of = dot_distance if compared_by == "dot" else l1_distance
    distance = distance_of(check_integers(q, "q"), check_integers(k, "k"))
    values = check_integers(v, "v")
    check_values(np.shape(k), values.shape)
    if delay is not None:
        distance = distance + np.asarray(delay)
    check_accumulator(values.shape[-2], int(np.abs(values.astype(np.int64)).max(initial=0)))
    if compared_by == "dot":
        distance = np.minimum(distance, tables.table.shape[2] - 1)
    check_distance(distance, tables)
    head = np.arange(tables.table.shape[0])[:, None, None]
    exponent = tables.row_exponent[head, distance.min(axis=-1, keepdims=True)]
    affinity = tables.table[head, exponent, distance]
    # Sums stay below 2**31, so a product in float64 is exact in any order, and faster than one of integers.
    with blas_section:
        acc = affinity.astype(np.float64) @ values.astype(np.float64)
    return acc.astype(np.int32), affinity.sum(axis=-1, dtype=np.uint32)


def check_accumulator(keys: int, largest_value: int) -> None:
    """Refuse shapes at which an int32 sum could overflow."""
    if keys * AFFINITY_MAX * max(largest_value, 1) >= INT32_LIMIT:
        most = (INT32_LIMIT - 1) // (AFFINITY_MAX * max(largest_value, 1))
        raise LapisError(
            f"{keys} keys with values up to {largest_value} could overflow an int32 sum; use at most {most} keys"
        )


def check_distance(distance: npt.NDArray[Any], tables: AffinityTables) -> None:
    """Refuse distances outside the tables."""
    size = tables.table.shape[2]
    if distance.size and (int(distance.max()) >= size or int(distance.min()) < 0):
        raise LapisError(
            f"distances span {int(distance.min())}..{int(distance.max())}, the tables end at {size - 1}; "
            "build them for C * T plus the largest delay"
        )
