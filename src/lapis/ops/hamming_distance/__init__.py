"""D_ij = sum_c [q_ic != k_jc]."""

from __future__ import annotations

from typing import Any

from lapis import native as library
from lapis.ops.arrays import is_tensor, shared_u8
from lapis.ops.hamming_distance import native, reference


def hamming_distance(q: Any, k: Any) -> Any:
    """D_ij = sum_c [q_ic != k_jc]: integer-valued codes q (..., N, C) and k (..., M, C)  ->  (..., N, M)."""
    if is_tensor(q):
        from lapis.ops.hamming_distance import torch_native

        return torch_native.hamming_distance(q, k)
    codes = shared_u8(q, k) if library.available() else None
    return reference.hamming_distance(q, k) if codes is None else native.hamming_distance(*codes)
