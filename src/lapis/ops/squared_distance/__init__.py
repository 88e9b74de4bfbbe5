"""D_ij = sum_c (q_ic - k_jc)**2."""

from __future__ import annotations

from typing import Any

from lapis.ops.arrays import is_tensor
from lapis.ops.squared_distance import reference


def squared_distance(q: Any, k: Any) -> Any:
    """D_ij = sum_c (q_ic - k_jc)**2: q (..., N, C) and k (..., M, C)  ->  (..., N, M)."""
    if is_tensor(q):
        from lapis.ops.squared_distance import eager

        return eager.squared_distance(q, k)
    return reference.squared_distance(q, k)
