"""Laplacian attention as a torch operator over the native library, for inference: no N x M matrix is stored.

Where a gradient is wanted, or the library cannot run, the same call is composed of smaller operators.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from lapis import native
from lapis.config import RowScale
from lapis.ops.affinity.eager import log_affinity
from lapis.ops.attention.native import check_heads, float_tables
from lapis.ops.l1_distance.torch_native import l1_distance
from lapis.ops.row_scale.eager import scale_rows
from lapis.ops.shapes import check_values
from lapis.ops.tensors import as_kernel_tensor, record, served_natively, threads


def attention(
    q: Tensor, k: Tensor, v: Tensor, tau: Tensor, row_scale: RowScale = "pow2", delay: Tensor | None = None
) -> Tensor:
    """Y_i = sum_j W_ij v_j, ln A_ij = -(D_ij + delay_ij) / tau_h.

    q, k (..., H, N, C) integer-valued codes, v (..., H, M, C) codes or values, tau (H,), delay (H, N, M) nonnegative.
    """
    check_values(k.shape, v.shape)
    tensors = (q, k, v, tau) if delay is None else (q, k, v, tau, delay)
    wants_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    if wants_gradient or not served_natively(*tensors) or v.shape[-1] != q.shape[-1] or k.shape[-2] == 0:
        distance = l1_distance(q, k)
        return scale_rows(log_affinity(distance if delay is None else distance + delay, tau), row_scale) @ v
    result: Tensor = torch.ops.lapis.attention(q, k, v, tau, row_scale, delay)
    return result


torch.library.define(
    "lapis::attention", "(Tensor q, Tensor k, Tensor v, Tensor tau, str row_scale, Tensor? delay) -> Tensor"
)


@torch.library.impl("lapis::attention", "CPU")
def _forward(q: Tensor, k: Tensor, v: Tensor, tau: Tensor, row_scale: RowScale, delay: Tensor | None) -> Tensor:
    # (B, N, H, C) in memory: what follows an attention joins the heads, which is then free.
    q4, k4, v4 = _by_heads(q), _by_heads(k), _by_heads(v)
    batch, heads, rows, channels = q4.shape
    out = torch.empty(batch, rows, heads, channels).transpose(1, 2)
    size = channels * _span(q4, k4) + 1
    delays = None
    if delay is not None:
        delays = delay.detach().to(torch.int32).expand(heads, rows, k4.shape[2]).contiguous()
        size += int(delays.max()) if delays.numel() else 0
    table, gain = float_tables(check_heads(tau.detach().double().numpy(), heads), size)
    native.check(
        native.library().lapis_attention(
            ctypes.byref(record(q4, k4, native.L1)),
            q4.data_ptr(),
            k4.data_ptr(),
            v4.data_ptr(),
            native.Strides(*v4.stride()[:3]),
            table.ctypes.data,
            gain.ctypes.data,
            size,
            None if delays is None else delays.data_ptr(),
            native.ROW_SCALES[row_scale],
            out.data_ptr(),
            native.Strides(*out.stride()[:3]),
            threads(),
        )
    )
    return out if q.dim() == 4 else out.reshape(q.shape)


def _by_heads(x: Tensor) -> Tensor:
    """(..., H, N, C) as (B, H, N, C): heads stay an axis of their own, because tau and delays go by them."""
    if x.dim() == 2:
        x = x.unsqueeze(0)
    return as_kernel_tensor(x if x.dim() == 4 else x.reshape(-1, *x.shape[-3:]))


def _span(q: Tensor, k: Tensor) -> int:
    """The largest difference that two codes can have."""
    if q.numel() == 0 or k.numel() == 0:
        return 0
    (q_low, q_high), (k_low, k_high) = torch.aminmax(q), torch.aminmax(k)
    span = max(float(q_high), float(k_high)) - min(float(q_low), float(k_low))
    return int(span) if span <= 255 else 255


def _forward_shape(q: Tensor, k: Tensor, v: Tensor, tau: Tensor, row_scale: str, delay: Tensor | None) -> Tensor:
    if q.dim() != 4:
        return q.new_empty(q.shape, dtype=torch.float32)
    batch, heads, rows, channels = q.shape
    return q.new_empty(batch, rows, heads, channels, dtype=torch.float32).transpose(1, 2)


torch.library.register_fake("lapis::attention", _forward_shape)
