"""Distances of codes on the fastest variant that fits: q (..., N, C) and k (..., M, C)  ->  (..., N, M)."""

from __future__ import annotations

from typing import Any

from lapis import native as library
from lapis.ops.arrays import is_tensor, shared_u8
from lapis.ops.distance import native, reference


def l1_distance(q: Any, k: Any) -> Any:
    """D_ij = sum_c |q_ic - k_jc| of integer-valued codes."""
    if is_tensor(q):
        from lapis.ops.distance import torch_native

        return torch_native.l1_distance(q, k)
    codes = shared_u8(q, k) if library.available() else None
    return reference.l1_distance(q, k) if codes is None else native.l1_distance(*codes)


def hamming_distance(q: Any, k: Any) -> Any:
    """D_ij = sum_c [q_ic != k_jc] of integer-valued codes."""
    if is_tensor(q):
        from lapis.ops.distance import torch_native

        return torch_native.hamming_distance(q, k)
    codes = shared_u8(q, k) if library.available() else None
    return reference.hamming_distance(q, k) if codes is None else native.hamming_distance(*codes)


def squared_distance(q: Any, k: Any) -> Any:
    """D_ij = sum_c (q_ic - k_jc)**2."""
    if is_tensor(q):
        from lapis.ops.distance import eager

        return eager.squared_distance(q, k)
    return reference.squared_distance(q, k)
