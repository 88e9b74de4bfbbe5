"""Distances of codes: q (..., N, C) and k (..., M, C)  ->  (..., N, M), of numpy arrays or tensors."""

from __future__ import annotations

from typing import Any

from lapis.ops.arrays import variant
from lapis.ops.distance import reference


def l1_distance(q: Any, k: Any) -> Any:
    """D_ij = sum_c |q_ic - k_jc| of integer-valued codes."""
    return variant(q, reference, "torch_native").l1_distance(q, k)


def hamming_distance(q: Any, k: Any) -> Any:
    """D_ij = sum_c [q_ic != k_jc] of integer-valued codes."""
    return variant(q, reference, "torch_native").hamming_distance(q, k)


def squared_distance(q: Any, k: Any) -> Any:
    """D_ij = sum_c (q_ic - k_jc)**2."""
    return variant(q, reference, "eager").squared_distance(q, k)
