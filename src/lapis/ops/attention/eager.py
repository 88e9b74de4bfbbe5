"""Laplacian attention in torch, on codes and on spike trains."""

from __future__ import annotations

import torch
from torch import Tensor

from lapis.config import RowScale
from lapis.ops.arrays import check_values
from lapis.ops.distance.eager import l1_distance
from lapis.ops.row_scale.eager import log_affinity, scale_rows


def weights(q: Tensor, k: Tensor, tau: Tensor, row_scale: RowScale, delay: Tensor | None = None) -> Tensor:
    """W_ij from ln A_ij = -(D_ij + delay_ij) / tau_h, scaled by rows."""
    distance = l1_distance(q, k)
    return scale_rows(log_affinity(distance if delay is None else distance + delay, tau), row_scale)


def attention(
    q: Tensor, k: Tensor, v: Tensor, tau: Tensor, row_scale: RowScale = "pow2", delay: Tensor | None = None
) -> Tensor:
    """Y_i = sum_j W_ij v_j, ln A_ij = -(D_ij + delay_ij) / tau_h.

    q, k (..., H, N, C) integer-valued codes, v (..., H, M, C) codes or values, tau (H,), delay (H, N, M).
    """
    check_values(k.shape, v.shape)
    return weights(q, k, tau, row_scale, delay) @ v


def attention_spikes(
    q: Tensor, k: Tensor, v: Tensor, tau: Tensor, row_scale: RowScale = "pow2", delay: Tensor | None = None
) -> Tensor:
    """Y[n]_i = sum_j W_ij S^V[n]_j: spike trains (T, ..., H, N, C)  ->  (T, ..., H, N, C)."""
    q_latency, k_latency = (first_spike(spikes).to(tau.dtype) for spikes in (q, k))
    w = weights(q_latency, k_latency, tau, row_scale, delay)
    return torch.stack([w @ step.to(tau.dtype) for step in v])


def first_spike(spikes: Tensor) -> Tensor:
    """The smallest n with a spike, T where there is none: (T, ...) -> (...)."""
    fired = spikes.bool()
    return torch.where(fired.any(0), fired.int().argmax(0), fired.shape[0])
