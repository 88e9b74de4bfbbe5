"""Distances of the native library as torch operators: one definition for every relation that it knows."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from lapis import native
from lapis.ops.tensors import as_kernel_tensor, record, threads


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


def _distance_backward(relation: int, grad: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    g = grad.detach().float().contiguous()
    q4, k4 = as_kernel_tensor(q), as_kernel_tensor(k)
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


def _shape(q: Tensor, k: Tensor) -> Tensor:
    return q.new_empty((*q.shape[:-1], k.shape[-2]), dtype=torch.float32)


def _backward_shapes(grad: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)
