"""Laplacian attention by the native library, on numpy arrays: no N x M matrix is stored."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from lapis import native
from lapis.codes import check_tau
from lapis.config import RowScale
from lapis.errors import LapisError
from lapis.ops.arrays import AttentionArrays, outer_strides

# Beyond this, a table of the head's affinities no longer fits any cache, and no network of ours comes near.
LARGEST_TABLE = 1 << 24


def attention(
    q_codes: npt.ArrayLike,
    k_codes: npt.ArrayLike,
    v: npt.ArrayLike,
    tau: npt.ArrayLike,
    row_scale: RowScale = "pow2",
    delay: npt.ArrayLike | None = None,
    threads: int = 1,
) -> npt.NDArray[np.float32]:
    """Y_i = sum_j W_ij v_j, ln A_ij = -(D_ij + delay_ij) / tau_h.

    q, k (..., H, N, C) integers 0..255, v (..., H, M, C) codes or values, tau (H,), delay (H, N, M) nonnegative
    integers  ->  (..., H, N, C) float32.
    """
    arrays = AttentionArrays.of(q_codes, k_codes, np.asarray(v, np.float32))
    heads, rows, channels = arrays.q.shape[1:]
    delays = check_delay(delay, heads, rows, arrays.k.shape[2])
    largest = max(int(arrays.q.max(initial=0)), int(arrays.k.max(initial=0)))
    size = channels * largest + 1 + (0 if delays is None or not delays.size else int(delays.max()))
    table, gain = float_tables(check_heads(tau, heads), size)
    out = np.empty(arrays.q.shape, np.float32)
    native.check(
        native.library().lapis_attention(
            *arrays.arguments(),
            table.ctypes.data,
            gain.ctypes.data,
            size,
            None if delays is None else delays.ctypes.data,
            native.ROW_SCALES[row_scale],
            out.ctypes.data,
            native.Strides(*outer_strides(out)),
            threads,
        )
    )
    return out.reshape(np.shape(q_codes))


def float_tables(tau: npt.NDArray[np.float64], size: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    """exp(-d/tau_h) for d < size, as float32 (H, size), and the same times a power of two that puts it in [1, 2)."""
    if not 1 <= size <= LARGEST_TABLE:
        raise LapisError(f"a table of {size} distances was asked; 1..{LARGEST_TABLE} are possible")
    log2 = np.arange(size) * (-1 / math.log(2)) / tau[:, None]
    table = np.exp2(log2).astype(np.float32)
    # A subnormal weighs nothing beside the row's nearest key, and costs a slow path in every multiplication.
    table[table < np.finfo(np.float32).tiny] = 0
    return table, np.exp2(log2 - np.floor(log2))


def check_heads(tau: npt.ArrayLike, heads: int) -> npt.NDArray[np.float64]:
    """Tau as (H,); a single value serves every head."""
    checked = check_tau(tau)
    if checked.ndim > 1 or checked.size not in (1, heads):
        raise LapisError(f"tau has shape {checked.shape}; give one value or one for each of {heads} heads")
    return np.array(np.broadcast_to(checked.reshape(-1), (heads,)))


def check_delay(delay: npt.ArrayLike | None, heads: int, rows: int, keys: int) -> npt.NDArray[np.int32] | None:
    """Position delays as contiguous int32 (H, N, M), nonnegative."""
    if delay is None:
        return None
    array = np.asarray(delay)
    if not np.issubdtype(array.dtype, np.integer) or (array.size and int(array.min()) < 0):
        raise LapisError("a position delay is a nonnegative integer number of leak steps")
    if array.size and int(array.max()) > LARGEST_TABLE:
        raise LapisError(f"a delay of {int(array.max())} leak steps was seen; up to {LARGEST_TABLE} are possible")
    try:
        spread = np.broadcast_to(array, (heads, rows, keys))
    except ValueError:
        raise LapisError(f"delays of shape {array.shape} do not fit (H, N, M) = {(heads, rows, keys)}") from None
    return np.ascontiguousarray(spread, np.int32)
