"""Distances of codes: q (..., N, C) and k (..., M, C)  ->  (..., N, M), of numpy arrays or tensors."""

from __future__ import annotations

from typing import Any

from lapis.ops.arrays import is_tensor
from lapis.ops.distance import reference


def l1_distance(q: Any, k: Any) -> Any:
    """D_ij = sum_c |q_ic - k_jc| of integer-valued codes."""
    if is_tensor(q):
        from lapis.ops.distance import torch_native

        return torch_native.l1_distance(q, k)
    return reference.l1_distance(q, k)


def hamming_distance(q: Any, k: Any) -> Any:
    """D_ij = sum_c [q_ic != k_jc] of integer-valued codes."""
    if is_tensor(q):
        from lapis.ops.distance import torch_native

        return torch_native.hamming_distance(q, k)
    return reference.hamming_distance(q, k)


def squared_distance(q: Any, k: Any) -> Any:
    """D_ij = sum_c (q_ic - k_jc)**2."""
    if is_tensor(q):
        from lapis.ops.distance import eager

        return eager.squared_distance(q, k)
    return reference.squared_distance(q, k)
