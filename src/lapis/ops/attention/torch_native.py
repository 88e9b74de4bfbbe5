"""Laplacian attention as one torch operator for every device: no N x M matrix is stored.

On the CPU the native library runs it, for inference. On a GPU Triton's kernels run it, forward and backward. Where
neither can, and for gradients on the CPU (where keeping the distances is faster than computing them again), the same
call is composed of smaller operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lapis import native
from lapis.config import RowScale
from lapis.ops.arrays import check_pair, check_values
from lapis.ops.attention.eager import attention_spikes as attention_spikes
from lapis.ops.attention.reference import check_heads, float_tables
from lapis.ops.distance.torch_native import l1_distance
from lapis.ops.gpu.choice import served_by_triton
from lapis.ops.row_scale.eager import log_affinity, scale_rows
from lapis.ops.tensors import as_kernel_tensor, record, served_natively, threads

if TYPE_CHECKING:
    from lapis.ops.attention.triton import Inputs

# The GPU kernels keep a row of channels in registers; wider heads are composed.
MOST_CHANNELS = 128


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tau: Tensor,
    row_scale: RowScale = "pow2",
    delay: Tensor | None = None,
    codes: tuple[int, int] | None = None,
) -> Tensor:
    """Y_i = sum_j W_ij v_j, ln A_ij = -(D_ij + delay_ij) / tau_h.

    q, k (..., H, N, C) integer-valued codes, v (..., H, M, C) codes or values, tau (H,), delay (H, N, M) nonnegative.
    `codes`, the range of q and k, lets a GPU with fast matrix units use them.
    """
    check_values(k.shape, v.shape)
    tensors = (q, k, v, tau) if delay is None else (q, k, v, tau, delay)
    wants_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    by_triton = served_by_triton(*tensors) and q.shape[-1] <= MOST_CHANNELS
    fused = by_triton or (not wants_gradient and served_natively(*tensors))
    if not fused or v.shape[-1] != q.shape[-1] or k.shape[-2] == 0:
        distance = l1_distance(q, k)
        return scale_rows(log_affinity(distance if delay is None else distance + delay, tau), row_scale) @ v
    check_pair(q.shape, k.shape)
    low, high = codes or (None, None)
    result: Tensor = torch.ops.lapis.attention(q, k, v, tau, row_scale, delay, low, high)[0]
    return result


_ARGUMENTS = "Tensor q, Tensor k, Tensor v, Tensor tau, str row_scale, Tensor? delay, int? low=None, int? high=None"
# The second result is what backward needs of each row; the CPU's has no rows.
torch.library.define("lapis::attention", f"({_ARGUMENTS}) -> (Tensor, Tensor)")
torch.library.define(
    "lapis::attention_backward",
    "(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor tau, str row_scale, Tensor? delay, int? low, int? high, "
    "Tensor y, Tensor rows) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)


def _forward_triton(*arguments: Any) -> tuple[Tensor, Tensor]:
    from lapis.ops.attention import triton

    y, rows = triton.attention(_inputs(*arguments))
    return (y if arguments[0].dim() == 4 else y.reshape(arguments[0].shape)), rows


def _backward_triton(grad: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    from lapis.ops.attention import triton

    *called, y, rows = arguments
    inputs, (q, k, v, tau, _, delay) = _inputs(*called), called[:6]
    found = triton.attention_backward(_by_heads(grad), inputs, _by_heads(y), rows)
    dtau = found.tau if tau.numel() == found.tau.numel() else found.tau.sum()
    ddelay = tau.new_empty(0) if found.delay is None or delay is None else found.delay.sum_to_size(delay.shape)
    return tuple(
        g.reshape(x.shape).to(x.dtype)
        for g, x in zip((found.q, found.k, found.v, dtau, ddelay), (q, k, v, tau, _or_empty(delay, tau)), strict=True)
    )


def _inputs(*arguments: Any) -> Inputs:
    """The arguments of the operator as the kernels take them."""
    from lapis.ops.attention.triton import Inputs

    q, k, v, tau, row_scale, delay, low, high = (*arguments, None, None)[:8]
    q4, k4, v4 = (_by_heads(x) for x in (q, k, v))
    heads, rows, keys = q4.shape[1], q4.shape[2], k4.shape[2]
    delays = None if delay is None else delay.detach().expand(heads, rows, keys)
    codes = None if low is None or high is None else (low, high)
    return Inputs(q4, k4, v4, tau.detach().expand(heads), delays, row_scale, codes)


def _or_empty(delay: Tensor | None, tau: Tensor) -> Tensor:
    """An operator returns tensors: an empty one stands for a gradient that nobody asked for."""
    return tau.new_empty(0) if delay is None else delay


def _forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    q, k, v, tau, row_scale, delay = arguments[:6]
    if served_by_triton(q):
        return _forward_triton(*arguments)
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
    v_strides, out_strides = (native.Strides(*x.stride()[:3]) for x in (v4, out))
    affinities = (table, gain, size, delays, native.ROW_SCALES[row_scale])
    pairs = record(q4, k4, native.L1)
    native.call("lapis_attention", pairs, q4, k4, v4, v_strides, *affinities, out, out_strides, threads())
    return (out if q.dim() == 4 else out.reshape(q.shape)), q.new_empty(0, dtype=torch.float32)


def _backward(grad: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    """The equations of the Triton kernels, with N x M matrices."""
    if served_by_triton(grad):
        return _backward_triton(grad, *arguments)
    q, k, v, tau, row_scale, delay, _, _, y, _ = arguments
    head_tau = tau.view(-1, 1, 1) if tau.dim() == 1 else tau
    distance = torch.ops.lapis.l1_distance(q, k)
    distance = distance if delay is None else distance + delay
    weights = scale_rows(-distance / head_tau, row_scale)
    delta = (grad * y).sum(-1, keepdim=True) / weights.sum(-1, keepdim=True)
    ds = weights * (grad @ v.mT - delta)
    dd = -ds / head_tau
    dq, dk = torch.ops.lapis.l1_distance_backward(dd, q, k)
    dtau = (-dd * distance / head_tau).sum_to_size(head_tau.shape).view(tau.shape)
    ddelay = tau.new_empty(0) if delay is None else dd.sum_to_size(delay.shape).to(delay.dtype)
    return dq, dk, (weights.mT @ grad).to(v.dtype), dtau.to(tau.dtype), ddelay


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


def _forward_shape(q: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    batch = 1
    for size in q.shape[:-3]:
        batch = batch * size
    heads = q.shape[-3] if q.dim() > 2 else 1
    rows = (3, batch, heads, q.shape[-2]) if served_by_triton(q) else (0,)
    saved = q.new_empty(rows, dtype=torch.float32)
    if q.dim() != 4:
        return q.new_empty(q.shape, dtype=torch.float32), saved
    joined = q.new_empty(batch, q.shape[2], heads, q.shape[3], dtype=torch.float32)
    return joined.transpose(1, 2), saved


def _backward_shapes(grad: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    q, k, v, tau, _, delay = arguments[:6]
    return tuple(x.new_empty(x.shape) for x in (q, k, v, tau, _or_empty(delay, tau)))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, tau, row_scale, delay, *codes = inputs
    ctx.rule = (row_scale, (*codes, None, None)[:2])
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(q, k, v, tau, delay, *output)


def _differentiate(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    q, k, v, tau, delay, y, rows = ctx.saved_tensors
    row_scale, codes = ctx.rule
    found = torch.ops.lapis.attention_backward(grad, q, k, v, tau, row_scale, delay, *codes, y, rows)
    return *found[:4], None, None if delay is None else found[4], None, None


torch.library.impl("lapis::attention", "CPU", _forward)
torch.library.impl("lapis::attention", "CUDA", _forward_triton)
torch.library.impl("lapis::attention_backward", "CPU", _backward)
torch.library.impl("lapis::attention_backward", "CUDA", _backward_triton)
torch.library.register_fake("lapis::attention", _forward_shape)
torch.library.register_fake("lapis::attention_backward", _backward_shapes)
torch.library.register_autograd("lapis::attention", _differentiate, setup_context=_save)
