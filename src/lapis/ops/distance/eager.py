"""Distances of codes in torch, differentiable: q (..., N, C) and k (..., M, C)  ->  (..., N, M)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lapis.codes import MAX_WINDOW
from lapis.ops.arrays import check_pair

# Codes of every window, raised above zero where they are signed.
MAX_LEVELS = 2 * MAX_WINDOW + 1


def l1_distance(q: Tensor, k: Tensor) -> Tensor:
    """D_ij = sum_c |q_ic - k_jc|, dD_ij/dq_ic = sign(q_ic - k_jc) with sign(0) = 0.

    q (..., N, C) and k (..., M, C), real or integer-valued  ->  (..., N, M). Memory is that of the result: the
    N x M x C differences are never stored.
    """
    check_pair(q.shape, k.shape)
    return torch.cdist(q, k, p=1.0)


def squared_distance(q: Tensor, k: Tensor) -> Tensor:
    """D_ij = |q_i|^2 + |k_j|^2 - 2 q_i . k_j, exact for integer-valued codes below 2**24.

    q (..., N, C) and k (..., M, C)  ->  (..., N, M).
    """
    check_pair(q.shape, k.shape)
    norms = (q * q).sum(-1).unsqueeze(-1) + (k * k).sum(-1).unsqueeze(-2)
    return norms - 2 * (q @ k.transpose(-1, -2))


def dot_distance(q: Tensor, k: Tensor) -> Tensor:
    """D_ij = max_j(q_i . k_j) - q_i . k_j, exact for integer-valued codes with products below 2**24.

    The largest product of a row has no gradient: scaled rows do not see what all of a row share.
    """
    check_pair(q.shape, k.shape)
    products = q @ k.transpose(-1, -2)
    return products.detach().amax(dim=-1, keepdim=True) - products


def hamming_distance(q: Tensor, k: Tensor, levels: int = MAX_LEVELS) -> Tensor:
    """D_ij = sum_c [q_ic != k_jc], for integer-valued q and k in 0..levels-1.

    The count is flat almost everywhere, so it trains by a stated surrogate: min(|q - k|, 1) has slope
    sign(q - k) where |q - k| <= 1, and that slope is used: dD_ij/dq_ic = sign(q_ic - k_jc) [|q_ic - k_jc| <= 1].
    Both directions are matrix products over one-hot codes, so nothing of size N x M x C is stored.
    """
    check_pair(q.shape, k.shape)
    result: Tensor = _Hamming.apply(q, k, levels)  # type: ignore[no-untyped-call]
    return result


def _one_hot(codes: Tensor, levels: int, dtype: torch.dtype) -> Tensor:
    """(..., N, C) integers  ->  (..., N, levels * C) zeros and ones, level by level."""
    level = torch.arange(levels, device=codes.device).view(levels, 1)
    return (codes.long().unsqueeze(-2) == level).to(dtype).flatten(-2)


def _near_slopes(codes: Tensor, levels: int, dtype: torch.dtype) -> Tensor:
    """For every level t and channel: sign(t - z) where |t - z| <= 1, else 0; laid out as `_one_hot`."""
    level = torch.arange(levels, device=codes.device).view(levels, 1)
    difference = level - codes.long().unsqueeze(-2)
    return (difference * (difference.abs() <= 1)).to(dtype).flatten(-2)


class _Hamming(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, levels: int) -> Tensor:
        ctx.save_for_backward(q, k)
        ctx.levels = levels
        equal = _one_hot(q, levels, q.dtype) @ _one_hot(k, levels, k.dtype).transpose(-1, -2)
        return q.shape[-1] - equal

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (grad,) = grads
        q, k = ctx.saved_tensors
        return _slope(grad, q, k, ctx.levels), _slope(grad.transpose(-1, -2), k, q, ctx.levels), None


def _slope(grad: Tensor, z: Tensor, other: Tensor, levels: int) -> Tensor:
    """sum_j grad_ij sign(z_ic - other_jc) [|z_ic - other_jc| <= 1]."""
    by_level: Tensor = (grad @ _near_slopes(other, levels, grad.dtype)).unflatten(-1, (levels, z.shape[-1]))
    return by_level.gather(-2, z.long().unsqueeze(-2)).squeeze(-2)
