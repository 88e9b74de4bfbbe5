"""D_ij = sum_c (q_ic - k_jc)**2 in torch, differentiable."""

from __future__ import annotations

from torch import Tensor

from lapis.ops.shapes import check_pair


def squared_distance(q: Tensor, k: Tensor) -> Tensor:
    """D_ij = |q_i|^2 + |k_j|^2 - 2 q_i . k_j, exact for integer-valued codes below 2**24.

    q (..., N, C) and k (..., M, C)  ->  (..., N, M).
    """
    check_pair(q.shape, k.shape)
    norms = (q * q).sum(-1).unsqueeze(-1) + (k * k).sum(-1).unsqueeze(-2)
    return norms - 2 * (q @ k.transpose(-1, -2))
