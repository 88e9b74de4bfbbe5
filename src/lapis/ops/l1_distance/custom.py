"""D_ij = sum_c |q_ic - k_jc| as a torch operator over the native library; eager wherever that cannot run."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from lapis import native
from lapis.ops.l1_distance import eager
from lapis.ops.shapes import check_pair
from lapis.ops.tensors import as_four_axes, record, served_natively, threads


def l1_distance(q: Tensor, k: Tensor) -> Tensor:
    """D_ij = sum_c |q_ic - k_jc|, dD_ij/dq_ic = sign(q_ic - k_jc) with sign(0) = 0.

    q (..., N, C) and k (..., M, C), integer-valued codes spanning at most 0..254  ->  (..., N, M) float32.
    """
    check_pair(q.shape, k.shape)
    if not served_natively(q, k):
        return eager.l1_distance(q, k)
    result: Tensor = torch.ops.lapis.l1_distance(q, k)
    return result


def distance(relation: int, q: Tensor, k: Tensor) -> Tensor:
    """Any relation of the library on CPU tensors."""
    out = torch.empty((*q.shape[:-1], k.shape[-2]))
    q4, k4 = as_four_axes(q), as_four_axes(k)
    native.check(
        native.library().lapis_distance(
            ctypes.byref(record(q4, k4, relation)),
            q4.data_ptr(),
            k4.data_ptr(),
            out.data_ptr(),
            native.OUT_F32,
            threads(),
        )
    )
    return out


def distance_backward(relation: int, grad: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of any relation of the library on CPU tensors."""
    g = grad.detach().float().contiguous()
    q4, k4 = as_four_axes(q), as_four_axes(k)
    grad_q, grad_k = torch.empty(q.shape), torch.empty(k.shape)
    native.check(
        native.library().lapis_distance_backward(
            ctypes.byref(record(q4, k4, relation)),
            q4.data_ptr(),
            k4.data_ptr(),
            g.data_ptr(),
            grad_q.data_ptr(),
            grad_k.data_ptr(),
            threads(),
        )
    )
    return grad_q.to(q.dtype), grad_k.to(k.dtype)


torch.library.define("lapis::l1_distance", "(Tensor q, Tensor k) -> Tensor")
torch.library.define("lapis::l1_distance_backward", "(Tensor grad, Tensor q, Tensor k) -> (Tensor, Tensor)")


@torch.library.impl("lapis::l1_distance", "CPU")
def _forward(q: Tensor, k: Tensor) -> Tensor:
    return distance(native.L1, q, k)


@torch.library.impl("lapis::l1_distance_backward", "CPU")
def _backward(grad: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return distance_backward(native.L1, grad, q, k)


def _forward_shape(q: Tensor, k: Tensor) -> Tensor:
    return q.new_empty((*q.shape[:-1], k.shape[-2]), dtype=torch.float32)


def _backward_shape(grad: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    grads: tuple[Tensor, Tensor] = torch.ops.lapis.l1_distance_backward(grad, *ctx.saved_tensors)
    return grads


torch.library.register_fake("lapis::l1_distance", _forward_shape)
torch.library.register_fake("lapis::l1_distance_backward", _backward_shape)
torch.library.register_autograd("lapis::l1_distance", _differentiate, setup_context=_save)
