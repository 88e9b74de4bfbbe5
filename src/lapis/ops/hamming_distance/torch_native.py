"""The count of differing codes as a torch operator over the native library; eager wherever that cannot run."""

from __future__ import annotations

import torch
from torch import Tensor

from lapis import native
from lapis.ops.hamming_distance import eager
from lapis.ops.pairwise import define_distance
from lapis.ops.shapes import check_pair
from lapis.ops.tensors import served_natively


def hamming_distance(q: Tensor, k: Tensor, levels: int = eager.MAX_LEVELS) -> Tensor:
    """D_ij = sum_c [q_ic != k_jc] for integer-valued q and k in 0..levels-1, with the surrogate gradient of `eager`."""
    check_pair(q.shape, k.shape)
    if not served_natively(q, k):
        return eager.hamming_distance(q, k, levels)
    result: Tensor = torch.ops.lapis.hamming_distance(q, k)
    return result


define_distance("hamming_distance", native.HAMMING)
