"""Learned step size quantization as torch operators: the native library on the CPU, Triton on a GPU, else eager.

Values and codes equal the eager ones in every bit; gradients of step and offset are summed in float64.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from lapis import native
from lapis.ops.gpu.choice import served_by_triton
from lapis.ops.lsq import eager
from lapis.ops.lsq.eager import Gradients
from lapis.ops.tensors import served_natively, threads

# The lowest, the highest and the minimum code that fires.
CodeRange = tuple[float, float, float]


def lsq_value(
    x: Tensor, step: Tensor, offset: Tensor | None, low: int, high: int, grad_scale: float = 1.0, min_code: int = 1
) -> Tensor:
    """z s + o, differentiable in x, s and o; step is 0-dim, or (O, 1) for weights (O, I); offset 0-dim."""
    variant = torch.ops.lapis if _fits(x, step, offset) else eager
    result: Tensor = variant.lsq_value(x, step, offset, low, high, grad_scale, min_code)
    return result


def lsq_codes(
    x: Tensor, step: Tensor, offset: Tensor | None, low: int, high: int, grad_scale: float = 1.0, min_code: int = 1
) -> Tensor:
    """z as integer-valued floats, differentiable in x, s and o."""
    variant = torch.ops.lapis if _fits(x, step, offset) else eager
    result: Tensor = variant.lsq_codes(x, step, offset, low, high, grad_scale, min_code)
    return result


def _fits(x: Tensor, step: Tensor, offset: Tensor | None) -> bool:
    tensors = (x, step) if offset is None else (x, step, offset)
    if any(t.dtype != torch.float32 for t in tensors) or not (served_natively(*tensors) or served_by_triton(*tensors)):
        return False
    one_step = step.numel() == 1 and step.dim() <= x.dim()
    rows = x.dim() == 2 and step.shape == (x.shape[0], 1)
    return (one_step or rows) and (offset is None or (offset.numel() == 1 and offset.dim() <= x.dim()))


def _forward(
    name: str, x: Tensor, step: Tensor, offset: Tensor | None, low: int, high: int, grad_scale: float, min_code: int
) -> Tensor:
    value = name == "lsq_value"
    if served_by_triton(x):
        from lapis.ops.lsq import triton

        return triton.lsq(x, step, offset, triton.LsqRule(low, high, min_code, value))
    x, out = x.detach().contiguous(), torch.empty(x.shape)
    targets = (out, None) if value else (None, out)
    native.call("lapis_lsq", x, *_rule(x, step, offset, (low, high, min_code)), *targets, threads())
    return out


def _backward(
    name: str, grad: Tensor, x: Tensor, step: Tensor, offset: Tensor | None, *rule: float
) -> tuple[Tensor, Tensor, Tensor]:
    low, high, scale, min_code = rule
    if x.is_cuda or served_by_triton(x):
        from lapis.ops.lsq import triton

        codes = triton.LsqRule(int(low), int(high), int(min_code), name == "lsq_value")
        return triton.lsq_backward(grad, x, step, offset, codes, scale)
    x, grad = x.detach().contiguous(), grad.detach().contiguous()
    grad_x = torch.empty(x.shape)
    sums = torch.empty(step.numel() + 1, dtype=torch.float64)
    shared = _rule(x, step, offset, (low, high, min_code))
    native.call(f"lapis_{name}_backward", x, grad, *shared, grad_x, sums, sums[-1:], threads())
    scaled = (sums * scale).float()
    return grad_x, scaled[:-1].reshape(step.shape), scaled[-1:].reshape(() if offset is None else offset.shape).clone()


def _rule(x: Tensor, step: Tensor, offset: Tensor | None, codes: CodeRange) -> tuple[Any, ...]:
    """The arguments that all kernels share: rows, columns, steps and whether each row has its own, offset, codes."""
    one_step = step.numel() == 1
    sizes = (1, x.numel()) if one_step else (x.shape[0], x.shape[1])
    return *sizes, step, int(not one_step), offset, *codes


def _shape(x: Tensor, step: Tensor, offset: Tensor | None, *rule: float) -> Tensor:
    return x.new_empty(x.shape)


def _backward_shape(
    grad: Tensor, x: Tensor, step: Tensor, offset: Tensor | None, *rule: float
) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), step.new_empty(step.shape), x.new_empty(() if offset is None else offset.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, step, offset, *rule = inputs
    ctx.save_for_backward(x, step, offset)
    ctx.rule = rule


def _differentiate(name: str) -> Any:
    def rule(ctx: Any, grad: Tensor) -> Gradients:
        x, step, offset = ctx.saved_tensors
        grads = getattr(torch.ops.lapis, f"{name}_backward")(grad, x, step, offset, *ctx.rule)
        return grads[0], grads[1], None if offset is None else grads[2], None, None, None, None

    return rule


_ARGUMENTS = "Tensor x, Tensor step, Tensor? offset, int low, int high, float grad_scale, int min_code"
for _name in ("lsq_value", "lsq_codes"):
    torch.library.define(f"lapis::{_name}", f"({_ARGUMENTS}) -> Tensor")
    torch.library.define(f"lapis::{_name}_backward", f"(Tensor grad, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor)")
    torch.library.impl(f"lapis::{_name}", ("CPU", "CUDA"), partial(_forward, _name))
    torch.library.impl(f"lapis::{_name}_backward", ("CPU", "CUDA"), partial(_backward, _name))
    torch.library.register_fake(f"lapis::{_name}", _shape)
    torch.library.register_fake(f"lapis::{_name}_backward", _backward_shape)
    torch.library.register_autograd(f"lapis::{_name}", _differentiate(_name), setup_context=_save)
