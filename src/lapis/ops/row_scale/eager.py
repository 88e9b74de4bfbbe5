"""Affinities, and their rows scaled to a mass of one, in torch, differentiable."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lapis.codes import SQRT_HALF
from lapis.config import RowScale
from lapis.ops.row_scale.reference import LN2

# How far the logarithm of a power of two, computed in float32, may lie beside it, relative to its size.
LOG_ERROR = 2.0**-22
# How far an affinity of few bits, computed in float32, may lie below a tie.
TIE = 2.0**-18


def affinity(distance: Tensor, tau: Tensor) -> Tensor:
    """A = exp(-D / tau_h): distance (..., H, N, M), tau (H,) or a single value."""
    return torch.exp(log_affinity(distance, tau))


def log_affinity(distance: Tensor, tau: Tensor) -> Tensor:
    """ln A = -D / tau_h, the form in which no row can underflow."""
    return -distance / (tau.view(-1, 1, 1) if tau.ndim == 1 else tau)


def scale_rows(log_affinity: Tensor, row_scale: RowScale = "pow2") -> Tensor:
    """The rows of A scaled by the named rule, differentiable; log_affinity (..., N, M) -> (..., N, M)."""
    return {"exact": exact_rows, "pow2": pow2_rows}[row_scale](log_affinity)


def exact_rows(log_affinity: Tensor) -> Tensor:
    """W_ij = A_ij / Z_i: the softmax of ln A over the keys."""
    return torch.softmax(log_affinity, dim=-1)


def pow2_rows(log_affinity: Tensor) -> Tensor:
    """W_ij = A_ij 2**-k_i, k_i = round(log2 Z_i).

    A row is written relative to its largest entry, W = exp(ln A - max) * exp(max - k ln 2), so it neither under- nor
    overflows; the second factor is a number near one, found in float64. The gradient is that of `shifted_rows`.
    """
    top = log_affinity.detach().amax(dim=-1, keepdim=True)
    k = row_exponent(log_affinity.detach()).double().unsqueeze(-1)
    factor = torch.exp(top.double() - k * LN2).to(log_affinity.dtype)
    weights = torch.exp(log_affinity.detach() - top) * factor
    return shifted_rows(log_affinity, weights, weights)


def shifted_rows(log_affinity: Tensor, weights: Tensor, before_rounding: Tensor) -> Tensor:
    """`weights`, with the gradient of exact rows times the row's mass: dW_ij = W_ij (d ln A_ij - d ln Z_i).

    The exponent k is constant almost everywhere, so the true derivative leaves out d ln Z. But a step that enlarges all
    affinities of a row then seems to enlarge its weights, the next k takes it back, and training drifts: the gradient
    must be blind to what the shift removes. `before_rounding` are the weights that the gradient sees as W.
    """
    rows: Tensor = _ShiftedRows.apply(log_affinity, weights, before_rounding)  # type: ignore[no-untyped-call]
    return rows


class _ShiftedRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_affinity: Tensor, weights: Tensor, before_rounding: Tensor) -> Tensor:
        ctx.save_for_backward(before_rounding)
        return weights.view_as(weights)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (weights,) = ctx.saved_tensors
        weighted = weights * grad
        mean = weighted.sum(dim=-1, keepdim=True) / weights.sum(dim=-1, keepdim=True)
        return weighted - weights * mean, None, None


def narrow_rows(log_affinity: Tensor, bits: int) -> Tensor:
    """W_ij = A_ij 2**-k_i of affinities rounded to `bits` bits, as a deployed network reads them.

    The largest entry of a row is lifted to 2**(bits - 1)..2**bits - 1 by a power of two, r_i, which cancels:
    A_ij = min(floor(2**(bits - 1) a_ij 2**-r_i + 1/2), 2**bits - 1), k_i = round(log2 sum_j A_ij). The gradient is that
    of `shifted_rows`, with the weights before rounding.
    """
    top = log_affinity.detach().amax(dim=-1, keepdim=True)
    log2 = top.double() / LN2
    # A relation in powers of two lies on the ties of all these roundings: its tops are made whole, its ties go up.
    whole = log2.round()
    log2 = torch.where((log2 - whole).abs() <= LOG_ERROR * whole.abs(), whole, log2)
    factor = torch.exp2(log2 - torch.floor(log2) + (bits - 1)).to(log_affinity.dtype)
    real = torch.exp(log_affinity.detach() - top) * factor
    rounded = torch.floor(real + (0.5 + TIE)).clamp_max((1 << bits) - 1)
    scale = torch.exp2(-pow2_exponent(rounded.sum(dim=-1, keepdim=True)).to(log_affinity.dtype))
    return shifted_rows(log_affinity, rounded * scale, real * scale)


def row_exponent(log_affinity: Tensor) -> Tensor:
    """k_i = round(log2 sum_j A_ij), (..., N, M) -> (..., N) int64; rows too small for a float are safe."""
    top = log_affinity.amax(dim=-1, keepdim=True)
    lifted = torch.exp(log_affinity - top).sum(dim=-1, dtype=torch.float64)
    r = torch.floor(top.double() / LN2)
    mass = lifted * torch.exp(top.double() - r * LN2).squeeze(-1)
    return pow2_exponent(mass) + r.squeeze(-1).long()


def pow2_exponent(z: Tensor) -> Tensor:
    """round(log2 z), exactly, for z > 0: see `lapis.codes.pow2_exponent`."""
    if torch.compiler.is_compiling():
        # An operator of its own: what torch 2.13 makes of frexp for a CPU does not compile.
        whole: Tensor = torch.ops.lapis.pow2_exponent(z)
        return whole
    return _pow2_exponent(z)


def _pow2_exponent(z: Tensor) -> Tensor:
    mantissa, exponent = torch.frexp(z.double())
    return exponent.long() - (mantissa < SQRT_HALF).long()


torch.library.define("lapis::pow2_exponent", "(Tensor z) -> Tensor")
torch.library.impl("lapis::pow2_exponent", "CompositeExplicitAutograd", _pow2_exponent)
torch.library.register_fake("lapis::pow2_exponent", lambda z: torch.empty_like(z, dtype=torch.int64))
