"""D_ij = sum_c |q_ic - k_jc| in torch, differentiable."""

from __future__ import annotations

import torch
from torch import Tensor

from lapis.ops.shapes import check_pair


def l1_distance(q: Tensor, k: Tensor) -> Tensor:
    """D_ij = sum_c |q_ic - k_jc|, dD_ij/dq_ic = sign(q_ic - k_jc) with sign(0) = 0.

    q (..., N, C) and k (..., M, C), real or integer-valued  ->  (..., N, M). Memory is that of the result: the
    N x M x C differences are never stored.
    """
    check_pair(q.shape, k.shape)
    return torch.cdist(q, k, p=1.0)
