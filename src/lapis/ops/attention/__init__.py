"""Laplacian attention: Y_i = sum_j W_ij v_j, W the affinities exp(-D_ij / tau_h) scaled by rows."""

from __future__ import annotations

from typing import Any

from lapis.config import RowScale
from lapis.ops.arrays import is_tensor
from lapis.ops.attention import reference


def attention(q: Any, k: Any, v: Any, tau: Any, row_scale: RowScale = "pow2", delay: Any = None) -> Any:
    """Y_i = sum_j W_ij v_j, ln A_ij = -(D_ij + delay_ij) / tau_h.

    q, k (..., H, N, C) integer-valued codes, v (..., H, M, C) codes or values, tau (H,) or a single value,
    delay (H, N, M) nonnegative integers  ->  (..., H, N, C).
    """
    if is_tensor(q):
        from lapis.ops.attention import torch_native

        return torch_native.attention(q, k, v, tau, row_scale, delay)
    return reference.attention(q, k, v, tau, row_scale, delay)


def attention_spikes(q: Any, k: Any, v: Any, tau: Any, row_scale: RowScale = "pow2", delay: Any = None) -> Any:
    """Y[n]_i = sum_j W_ij S^V[n]_j: spike trains (T, ..., H, N, C)  ->  (T, ..., H, N, C); see `reference`."""
    if is_tensor(q):
        from lapis.ops.attention import eager

        return eager.attention_spikes(q, k, v, tau, row_scale, delay)
    return reference.attention_spikes(q, k, v, tau, row_scale, delay)
