"""Learned step size quantization in torch: one fused function forward, one backward.

With u = (x - o)/s and z = clamp(floor(u + 1/2), low, high), or 0 where |z| < min_code, and "inside" meaning
low < u < high, the straight-through rule treats z as u inside (the silent zone too) and as a constant outside:

    value = z s + o    d/dx = inside     d/ds = z - u inside, z outside    d/do = 0 inside, 1 outside
    codes = z          d/dx = inside/s   d/ds = -u/s inside, 0 outside     d/do = -1/s inside, 0 outside

The gradients of s and o are multiplied by `grad_scale`, 1/sqrt(n high) as published.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lapis.ops.tensors import round_half_up, silence

# Of x, the step and the offset; the numbers behind them have none.
Gradients = tuple[Tensor, Tensor, Tensor | None, None, None, None, None]


def lsq_value(
    x: Tensor, step: Tensor, offset: Tensor | None, low: int, high: int, grad_scale: float = 1.0, min_code: int = 1
) -> Tensor:
    """z s + o, differentiable in x, s and o; step and offset are 0-dim, or (O, 1) for weights (O, I)."""
    result: Tensor = _Value.apply(x, step, offset, low, high, grad_scale, min_code)  # type: ignore[no-untyped-call]
    return result


def lsq_codes(
    x: Tensor, step: Tensor, offset: Tensor | None, low: int, high: int, grad_scale: float = 1.0, min_code: int = 1
) -> Tensor:
    """z as integer-valued floats, differentiable in x, s and o."""
    result: Tensor = _Codes.apply(x, step, offset, low, high, grad_scale, min_code)  # type: ignore[no-untyped-call]
    return result


def _scaled(x: Tensor, step: Tensor, offset: Tensor | None) -> Tensor:
    return x / step if offset is None else (x - offset).div_(step)


def plain_codes(x: Tensor, step: Tensor, offset: Tensor | None, low: int, high: int, min_code: int = 1) -> Tensor:
    """z without a gradient; step and offset may have any shape that broadcasts."""
    return _rounded(_scaled(x, step, offset), low, high, min_code)


def _rounded(u: Tensor, low: int, high: int, min_code: int) -> Tensor:
    return silence(round_half_up(u).clamp_(low, high), min_code)


def _reduce_like(grad: Tensor, parameter: Tensor, scale: float) -> Tensor:
    return grad.sum_to_size(parameter.shape) * scale


def _saved(ctx: Any) -> tuple[Tensor, Tensor, Tensor | None, int, int, float, int]:
    """u and what it was made from, as forward left it."""
    x, step, offset = ctx.saved_tensors
    return _scaled(x, step, offset), step, offset, *ctx.rule


class _Codes(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, step: Tensor, offset: Tensor | None, low: int, high: int, grad_scale: float, min_code: int
    ) -> Tensor:
        ctx.save_for_backward(x, step, offset)
        ctx.rule = (low, high, grad_scale, min_code)
        return plain_codes(x, step, offset, low, high, min_code)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Gradients:
        (grad,), (u, step, offset, low, high, scale, _) = grads, _saved(ctx)
        grad_u = grad * ((u > low) & (u < high)) / step
        grad_step = _reduce_like(u.mul_(grad_u).neg_(), step, scale)
        grad_offset = None if offset is None else _reduce_like(-grad_u, offset, scale)
        return grad_u, grad_step, grad_offset, None, None, None, None


class _Value(_Codes):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        step, offset = arguments[1:3]
        value = _Codes.forward(ctx, *arguments).mul_(step)
        return value if offset is None else value.add_(offset)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Gradients:
        (grad,), (u, step, offset, low, high, scale, min_code) = grads, _saved(ctx)
        inside = (u > low) & (u < high)
        z = _rounded(u, low, high, min_code)
        grad_step = _reduce_like(z.sub_(u * inside).mul_(grad), step, scale)
        grad_offset = None if offset is None else _reduce_like(grad * ~inside, offset, scale)
        return grad * inside, grad_step, grad_offset, None, None, None, None
