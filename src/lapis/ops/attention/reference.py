"""Laplacian attention on codes, and the same on spike trains; the tables that the native kernel reads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from lapis.codes import check_integers, check_tau
from lapis.config import RowScale
from lapis.errors import LapisError
from lapis.ops.arrays import check_values
from lapis.ops.distance.reference import l1_distance
from lapis.ops.row_scale.reference import scale_rows
from lapis.spikes import first_spike

Float = npt.NDArray[np.float64]
Delay = ArrayLike | None
# Beyond this, a table of the head's affinities no longer fits any cache, and no network of ours comes near.
LARGEST_TABLE = 1 << 24


def weights(q: ArrayLike, k: ArrayLike, tau: ArrayLike, row_scale: RowScale, delay: Delay = None) -> Float:
    """W_ij from ln A_ij = -(D_ij + delay_ij) / tau_h, scaled by rows.

    q (..., H, N, C) and k (..., H, M, C) codes, tau (H,), delay (H, N, M) nonnegative integers  ->  (..., H, N, M).
    """
    total = l1_distance(q, k)
    if delay is not None:
        extra = np.asarray(delay)
        if not np.issubdtype(extra.dtype, np.integer) or (extra.size and int(extra.min()) < 0):
            raise LapisError("a position delay is a nonnegative integer number of leak steps")
        total = total + extra
    return scale_rows(-total / check_tau(tau).reshape(-1, 1, 1), row_scale)


def attention(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, tau: ArrayLike, row_scale: RowScale = "pow2", delay: Delay = None
) -> Float:
    """Y_i = sum_j W_ij v_j: q, k (..., H, N, C) integer codes, v (..., H, M, C) codes or values  ->  (..., H, N, C)."""
    q_codes, k_codes, values = check_integers(q, "q"), check_integers(k, "k"), np.asarray(v, dtype=np.float64)
    check_values(k_codes.shape, values.shape)
    return np.asarray(weights(q_codes, k_codes, tau, row_scale, delay) @ values)


def attention_spikes(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, tau: ArrayLike, row_scale: RowScale = "pow2", delay: Delay = None
) -> Float:
    """Y[n]_i = sum_j W_ij S^V[n]_j at every step, with W from first-spike latencies.

    Spike trains (T, ..., H, N, C)  ->  (T, ..., H, N, C). A spike at step n stands for the code T - n, so
    sum_n (T - n) Y[n] is what `attention` gives on the codes.
    """
    w = weights(first_spike(q), first_spike(k), tau, row_scale, delay)
    return np.stack([w @ step.astype(np.float64) for step in np.asarray(v)])


def readout(y_steps: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """sum_n (T - n) Y[n]: a spike that arrives at step n has T - n steps left to act."""
    window = y_steps.shape[0]
    remaining = window - np.arange(window)
    return np.tensordot(remaining, y_steps, axes=(0, 0))


def float_tables(tau: Float, size: int) -> tuple[npt.NDArray[np.float32], Float]:
    """exp(-d/tau_h) for d < size, as float32 (H, size), and the same times a power of two that puts it in [1, 2)."""
    if not 1 <= size <= LARGEST_TABLE:
        raise LapisError(f"a table of {size} distances was asked; 1..{LARGEST_TABLE} are possible")
    log2 = np.arange(size) * (-1 / math.log(2)) / tau[:, None]
    table = np.exp2(log2).astype(np.float32)
    # A subnormal weighs nothing beside the row's nearest key, and costs a slow path in every multiplication.
    table[table < np.finfo(np.float32).tiny] = 0
    return table, np.exp2(log2 - np.floor(log2))


def check_heads(tau: ArrayLike, heads: int) -> Float:
    """Tau as (H,); a single value serves every head."""
    checked = check_tau(tau)
    if checked.ndim > 1 or checked.size not in (1, heads):
        raise LapisError(f"tau has shape {checked.shape}; give one value or one for each of {heads} heads")
    return np.array(np.broadcast_to(checked.reshape(-1), (heads,)))
