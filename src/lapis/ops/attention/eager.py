"""Laplacian attention in torch, on codes and on spike trains."""

from __future__ import annotations

import torch
from torch import Tensor

from lapis.config import RowScale
from lapis.ops.arrays import check_values
from lapis.ops.distance.eager import l1_distance
from lapis.ops.row_scale.eager import log_affinity, scale_rows


def attention(
    q: Tensor, k: Tensor, v: Tensor, tau: Tensor, row_scale: RowScale = "pow2", delay: Tensor | None = None
) -> Tensor:
    """Y_i = sum_j W_ij v_j, ln A_ij = -(D_ij + delay_ij) / tau_h.

    q, k (..., H, N, C) integer-valued codes, v (..., H, M, C) codes or values, tau (H,), delay (H, N, M).
    """
    check_values(k.shape, v.shape)
    distance = l1_distance(q, k)
    if delay is not None:
        distance = distance + delay
    return scale_rows(log_affinity(distance, tau), row_scale) @ v


def attention_spikes(
    q_spikes: Tensor,
    k_spikes: Tensor,
    v_spikes: Tensor,
    tau: Tensor,
    row_scale: RowScale = "pow2",
    delay: Tensor | None = None,
) -> Tensor:
    """Y[n]_i = sum_j W_ij S^V[n]_j: spike trains (T, ..., H, N, C)  ->  (T, ..., H, N, C)."""
    q, k = (first_spike(spikes).to(tau.dtype) for spikes in (q_spikes, k_spikes))
    distance = l1_distance(q, k)
    if delay is not None:
        distance = distance + delay
    weights = scale_rows(log_affinity(distance, tau), row_scale)
    return torch.stack([weights @ step.to(tau.dtype) for step in v_spikes])


def first_spike(spikes: Tensor) -> Tensor:
    """The smallest n with a spike, T where there is none: (T, ...) -> (...)."""
    fired = spikes.bool()
    return torch.where(fired.any(0), fired.int().argmax(0), fired.shape[0])
