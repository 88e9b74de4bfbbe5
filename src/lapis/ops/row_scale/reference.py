"""Affinities A = exp(-D / tau), and their rows scaled to a mass of one: exactly, or by the nearest power of two.

Rows are given as ln A, not A: a row of large distances would vanish as A, and must not.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from lapis.codes import check_tau, pow2_exponent
from lapis.config import RowScale
from lapis.errors import LapisError

Float = npt.NDArray[np.float64]
LN2 = math.log(2.0)


def scale_rows(log_affinity: npt.ArrayLike, row_scale: RowScale = "pow2") -> Float:
    """The rows of A scaled by the named rule; log_affinity (..., N, M) -> (..., N, M)."""
    return {"exact": exact_rows, "pow2": pow2_rows}[row_scale](log_affinity)


def exact_rows(log_affinity: npt.ArrayLike) -> Float:
    """W_ij = A_ij / Z_i, Z_i = sum_j A_ij; log_affinity (..., N, M) -> (..., N, M), each row sums to 1."""
    log_a = _checked(log_affinity)
    lifted = np.exp(log_a - log_a.max(axis=-1, keepdims=True))
    return np.asarray(lifted / lifted.sum(axis=-1, keepdims=True))


def pow2_rows(log_affinity: npt.ArrayLike) -> Float:
    """W_ij = A_ij 2**-k_i, k_i = round(log2 Z_i); each row sums to a value in [1/sqrt 2, sqrt 2]."""
    log_a = _checked(log_affinity)
    return np.asarray(np.exp(log_a - row_exponent(log_a)[..., None] * LN2))


def row_exponent(log_affinity: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """k_i = round(log2 sum_j A_ij), also for rows whose affinities are too small for a float.

    The row is first lifted by an exact power of two, 2**r, which shifts k by r and changes nothing else.
    """
    log_a = _checked(log_affinity)
    r = -np.floor(log_a.max(axis=-1) / LN2)
    lifted = np.exp(log_a + r[..., None] * LN2)
    return np.asarray(pow2_exponent(lifted.sum(axis=-1)) - r.astype(np.int64))


def _checked(log_affinity: npt.ArrayLike) -> Float:
    log_a = np.asarray(log_affinity, dtype=np.float64)
    if log_a.ndim < 2 or log_a.shape[-1] == 0:
        raise LapisError(f"rows need the shape (..., N, M) with M >= 1; seen {log_a.shape}")
    if not np.isfinite(log_a).all():
        raise LapisError("a row holds an affinity that is zero, infinite or not a number; ln A must be finite")
    return log_a


def affinity(distance: npt.ArrayLike, tau: npt.ArrayLike) -> Float:
    """A = exp(-D / tau_h), in (0, 1].

    distance (..., H, N, M) >= 0 with tau (H,), or any shape with a single tau.
    """
    d = np.asarray(distance, dtype=np.float64)
    if d.size and not d.min() >= 0:  # also refuses NaN
        raise LapisError(f"a distance of {d.min()} was seen; distances are nonnegative numbers")
    checked = check_tau(tau)
    return np.exp(-d / (checked.reshape(-1, 1, 1) if checked.ndim == 1 and d.ndim >= 3 else checked))
