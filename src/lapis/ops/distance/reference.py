"""Distances of codes, by which queries and keys are compared: l1, squared, and the count of codes that differ.

q (..., N, C) and k (..., M, C), integers  ->  (..., N, M), integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lapis._util.locks import blas_section
from lapis.ops.arrays import check_pair


def l1_distance(q: npt.ArrayLike, k: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """D_ij = sum_c |q_ic - k_jc|: subtract, absolute value, accumulate.

    In 0..C*T. Codes and latencies give the same distance, because t = T - z.
    """
    q, k = np.asarray(q).astype(np.int64), np.asarray(k).astype(np.int64)
    check_pair(q.shape, k.shape)
    distance = np.zeros((*q.shape[:-1], k.shape[-2]), dtype=np.int64)
    for channel in range(q.shape[-1]):
        distance += np.abs(q[..., :, None, channel] - k[..., None, :, channel])
    return distance


def squared_distance(q: npt.ArrayLike, k: npt.ArrayLike) -> npt.NDArray[Any]:
    """D_ij = sum_c (q_ic - k_jc)**2, in 0..C*T*T."""
    q, k = np.asarray(q).astype(np.int64), np.asarray(k).astype(np.int64)
    check_pair(q.shape, k.shape)
    return np.asarray(((q[..., :, None, :] - k[..., None, :, :]) ** 2).sum(axis=-1))


def hamming_distance(q: npt.ArrayLike, k: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """D_ij = sum_c [q_ic != k_jc], in 0..C: unequal first-spike latencies, without how far they are apart."""
    q, k = np.asarray(q), np.asarray(k)
    check_pair(q.shape, k.shape)
    return np.asarray((q[..., :, None, :] != k[..., None, :, :]).sum(axis=-1, dtype=np.int64))


def dot_distance(q: npt.ArrayLike, k: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """D_ij = max_j(q_i . k_j) - q_i . k_j: how far a product lies below the largest of its row, in 0..C*T*(T - low)."""
    q, k = np.asarray(q).astype(np.float64), np.asarray(k).astype(np.float64)
    check_pair(q.shape, k.shape)
    # Sums of integers below 2**53 are exact in any order.
    with blas_section:
        products = q @ np.swapaxes(k, -1, -2)
    return np.asarray(products.max(axis=-1, keepdims=True, initial=-np.inf) - products).astype(np.int64)
