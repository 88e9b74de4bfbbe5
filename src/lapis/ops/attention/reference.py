"""Laplacian attention on codes, and the same on spike trains."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lapis.codes import check_integers, check_tau
from lapis.config import RowScale
from lapis.errors import LapisError
from lapis.ops.l1_distance.reference import l1_distance
from lapis.ops.row_scale.reference import scale_rows
from lapis.ops.shapes import check_values
from lapis.spikes import first_spike

Float = npt.NDArray[np.float64]


def weights(
    q_codes: npt.ArrayLike,
    k_codes: npt.ArrayLike,
    tau: npt.ArrayLike,
    row_scale: RowScale,
    delay: npt.ArrayLike | None = None,
) -> Float:
    """W_ij from ln A_ij = -(D_ij + delay_ij) / tau_h, scaled by rows.

    q_codes (..., H, N, C), k_codes (..., H, M, C), tau (H,), delay (H, N, M) nonnegative integers  ->  (..., H, N, M).
    """
    total = l1_distance(q_codes, k_codes)
    if delay is not None:
        extra = np.asarray(delay)
        if not np.issubdtype(extra.dtype, np.integer) or (extra.size and int(extra.min()) < 0):
            raise LapisError("a position delay is a nonnegative integer number of leak steps")
        total = total + extra
    return scale_rows(-total / check_tau(tau).reshape(-1, 1, 1), row_scale)


def attention(
    q_codes: npt.ArrayLike,
    k_codes: npt.ArrayLike,
    v: npt.ArrayLike,
    tau: npt.ArrayLike,
    row_scale: RowScale = "pow2",
    delay: npt.ArrayLike | None = None,
) -> Float:
    """Y_i = sum_j W_ij v_j: q, k (..., H, N, C) integer codes, v (..., H, M, C) codes or values  ->  (..., H, N, C)."""
    q, k, values = check_integers(q_codes, "q"), check_integers(k_codes, "k"), np.asarray(v, dtype=np.float64)
    check_values(k.shape, values.shape)
    return np.asarray(weights(q, k, tau, row_scale, delay) @ values)


def attention_spikes(
    q_spikes: npt.ArrayLike,
    k_spikes: npt.ArrayLike,
    v_spikes: npt.ArrayLike,
    tau: npt.ArrayLike,
    row_scale: RowScale = "pow2",
    delay: npt.ArrayLike | None = None,
) -> Float:
    """Y[n]_i = sum_j W_ij S^V[n]_j at every step, with W from first-spike latencies.

    Spike trains (T, ..., H, N, C)  ->  (T, ..., H, N, C). A spike at step n stands for the code T - n, so
    sum_n (T - n) Y[n] is what `attention` gives on the codes.
    """
    w = weights(first_spike(q_spikes), first_spike(k_spikes), tau, row_scale, delay)
    v = np.asarray(v_spikes)
    return np.stack([w @ step.astype(np.float64) for step in v])


def readout(y_steps: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """sum_n (T - n) Y[n]: a spike that arrives at step n has T - n steps left to act."""
    window = y_steps.shape[0]
    remaining = window - np.arange(window)
    return np.tensordot(remaining, y_steps, axes=(0, 0))
