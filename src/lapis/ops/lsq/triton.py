"""Learned step size quantization by Triton's kernels: one pass over x forward, one backward.

The operators `torch.ops.lapis.lsq_codes` and `lsq_value` call these functions for tensors on a GPU. Codes, values and
the gradient of x equal the eager ones in every bit; gradients of step and offset are sums, here of blocks in float32
and of their results in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from lapis.ops.lsq import triton_kernels as kernels

BLOCK = 1024
# Fusing z s + o into one rounding would change the last bit.
LAUNCH: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": False}


class LsqRule(NamedTuple):
    """Codes low..high, 0 where the magnitude is below `min_code`; as values z s + o, or as codes."""

    low: int
    high: int
    min_code: int
    value: bool


def lsq(x: Tensor, step: Tensor, offset: Tensor | None, rule: LsqRule) -> Tensor:
    """Codes or values of x, float32; step has one element, or (O, 1) for x (O, I); offset has one element."""
    x, out = x.detach().contiguous(), torch.empty(x.shape, device=x.device)
    if x.numel():
        rows, columns = _sizes(x, step)
        grid = (rows * triton.cdiv(columns, BLOCK),)
        shift = step if offset is None else offset
        kernels.quantize[grid](x, step, shift, out, columns, **_constants(step, offset, rule), **LAUNCH)
    return out


def lsq_backward(
    grad: Tensor, x: Tensor, step: Tensor, offset: Tensor | None, rule: LsqRule, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, step and offset; without an offset the last has no meaning."""
    x, grad = x.detach().contiguous(), grad.detach().contiguous()
    dx = torch.empty(x.shape, device=x.device)
    rows, columns = _sizes(x, step)
    programs = rows * triton.cdiv(columns, BLOCK)
    parts = torch.zeros(2, programs, device=x.device)
    if x.numel():
        shift = step if offset is None else offset
        constants = _constants(step, offset, rule)
        kernels.quantize_backward[(programs,)](grad, x, step, shift, dx, parts, columns, **constants, **LAUNCH)
    sums = parts.double() * scale
    dstep = sums[0].view(step.numel(), -1).sum(1).float().view(step.shape)
    return dx, dstep, sums[1].sum().float().reshape(() if offset is None else offset.shape)


def _sizes(x: Tensor, step: Tensor) -> tuple[int, int]:
    return (1, x.numel()) if step.numel() == 1 else (x.shape[0], x.shape[1])


def _constants(step: Tensor, offset: Tensor | None, rule: LsqRule) -> dict[str, Any]:
    return {
        "ROW": step.numel() > 1,
        "OFFSET": offset is not None,
        "VALUE": rule.value,
        "LOW": rule.low,
        "HIGH": rule.high,
        "LEAST": rule.min_code,
        "BLOCK": BLOCK,
    }
