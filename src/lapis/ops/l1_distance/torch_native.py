"""D_ij = sum_c |q_ic - k_jc| as a torch operator over the native library; eager wherever that cannot run."""

from __future__ import annotations

import torch
from torch import Tensor

from lapis import native
from lapis.ops.l1_distance import eager
from lapis.ops.pairwise import define_distance
from lapis.ops.shapes import check_pair
from lapis.ops.tensors import served_natively


def l1_distance(q: Tensor, k: Tensor) -> Tensor:
    """D_ij = sum_c |q_ic - k_jc|, dD_ij/dq_ic = sign(q_ic - k_jc) with sign(0) = 0.

    q (..., N, C) and k (..., M, C), integer-valued codes spanning at most 0..254  ->  (..., N, M) float32.
    """
    check_pair(q.shape, k.shape)
    if not served_natively(q, k):
        return eager.l1_distance(q, k)
    result: Tensor = torch.ops.lapis.l1_distance(q, k)
    return result


define_distance("l1_distance", native.L1)
