"""Rows of affinities scaled to a mass of one, in torch, differentiable."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lapis.codes import SQRT_HALF
from lapis.config import RowScale

LN2 = math.log(2.0)


def scale_rows(log_affinity: Tensor, row_scale: RowScale) -> Tensor:
    """The rows of A scaled by the named rule, differentiable; log_affinity (..., N, M) -> (..., N, M)."""
    return {"exact": exact_rows, "pow2": pow2_rows}[row_scale](log_affinity)


def exact_rows(log_affinity: Tensor) -> Tensor:
    """W_ij = A_ij / Z_i: the softmax of ln A over the keys."""
    return torch.softmax(log_affinity, dim=-1)


def pow2_rows(log_affinity: Tensor) -> Tensor:
    """W_ij = A_ij 2**-k_i, k_i = round(log2 Z_i).

    k is constant almost everywhere, so dW_ij = W_ij d(ln A_ij): the true derivative where there is one. A row is
    written relative to its largest entry, W = exp(ln A - max) * exp(max - k ln 2), so it neither under- nor overflows;
    the second factor is a number near one, found in float64.
    """
    with torch.no_grad():
        top = log_affinity.amax(dim=-1, keepdim=True)
        k = row_exponent(log_affinity).double().unsqueeze(-1)
        factor = torch.exp(top.double() - k * LN2).to(log_affinity.dtype)
    return torch.exp(log_affinity - top) * factor


def row_exponent(log_affinity: Tensor) -> Tensor:
    """k_i = round(log2 sum_j A_ij), (..., N, M) -> (..., N) int64; rows too small for a float are safe."""
    top = log_affinity.amax(dim=-1, keepdim=True)
    lifted = torch.exp(log_affinity - top).sum(dim=-1, dtype=torch.float64)
    r = torch.floor(top.double() / LN2)
    mass = lifted * torch.exp(top.double() - r * LN2).squeeze(-1)
    return pow2_exponent(mass) + r.squeeze(-1).long()


def pow2_exponent(z: Tensor) -> Tensor:
    """round(log2 z), exactly, for z > 0: see `lapis.codes.pow2_exponent`."""
    mantissa, exponent = torch.frexp(z.double())
    return exponent.long() - (mantissa < SQRT_HALF).long()
