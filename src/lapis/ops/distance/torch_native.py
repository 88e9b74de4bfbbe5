"""Distances of codes as torch operators over the native library; eager wherever that cannot run."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lapis import native
from lapis.ops.arrays import check_pair
from lapis.ops.distance import eager
from lapis.ops.distance.eager import squared_distance as squared_distance
from lapis.ops.tensors import as_kernel_tensor, record, served_natively, threads


def l1_distance(q: Tensor, k: Tensor) -> Tensor:
    """D_ij = sum_c |q_ic - k_jc|, dD_ij/dq_ic = sign(q_ic - k_jc) with sign(0) = 0.

    q (..., N, C) and k (..., M, C), integer-valued codes spanning at most 0..254  ->  (..., N, M) float32.
    """
    check_pair(q.shape, k.shape)
    if not served_natively(q, k):
        return eager.l1_distance(q, k)
    result: Tensor = torch.ops.lapis.l1_distance(q, k)
    return result


def hamming_distance(q: Tensor, k: Tensor, levels: int = eager.MAX_LEVELS) -> Tensor:
    """D_ij = sum_c [q_ic != k_jc] for integer-valued q and k in 0..levels-1, with the surrogate gradient of `eager`."""
    check_pair(q.shape, k.shape)
    if not served_natively(q, k):
        return eager.hamming_distance(q, k, levels)
    result: Tensor = torch.ops.lapis.hamming_distance(q, k)
    return result


def define_distance(name: str, relation: int) -> None:
    """Register torch.ops.lapis.<name>(q, k) -> D with its gradient, as <name>_backward."""
    forward, backward = f"lapis::{name}", f"lapis::{name}_backward"

    def differentiate(ctx: Any, grad: Tensor) -> Any:
        return getattr(torch.ops.lapis, f"{name}_backward")(grad, *ctx.saved_tensors)

    torch.library.define(forward, "(Tensor q, Tensor k) -> Tensor")
    torch.library.define(backward, "(Tensor grad, Tensor q, Tensor k) -> (Tensor, Tensor)")
    torch.library.impl(forward, "CPU", lambda q, k: _distance(relation, q, k))
    torch.library.impl(backward, "CPU", lambda grad, q, k: _distance_backward(relation, grad, q, k))
    torch.library.register_fake(forward, _shape)
    torch.library.register_fake(backward, _backward_shapes)
    torch.library.register_autograd(forward, differentiate, setup_context=_save)


def _distance(relation: int, q: Tensor, k: Tensor) -> Tensor:
    out = torch.empty((*q.shape[:-1], k.shape[-2]))
    q4, k4 = as_kernel_tensor(q), as_kernel_tensor(k)
    native.call("lapis_distance", record(q4, k4, relation), q4, k4, out, native.OUT_F32, threads())
    return out


def _distance_backward(relation: int, grad: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    g = grad.detach().float().contiguous()
    q4, k4 = as_kernel_tensor(q), as_kernel_tensor(k)
    grad_q, grad_k = torch.empty(q.shape), torch.empty(k.shape)
    native.call("lapis_distance_backward", record(q4, k4, relation), q4, k4, g, grad_q, grad_k, threads())
    return grad_q.to(q.dtype), grad_k.to(k.dtype)


def _shape(q: Tensor, k: Tensor) -> Tensor:
    return q.new_empty((*q.shape[:-1], k.shape[-2]), dtype=torch.float32)


def _backward_shapes(grad: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


define_distance("l1_distance", native.L1)
define_distance("hamming_distance", native.HAMMING)
