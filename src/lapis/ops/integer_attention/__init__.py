"""Laplacian attention in integers: tables of fixed-point affinities, integer row sums, integer value sums."""

from __future__ import annotations

from typing import Any

from lapis.ops.arrays import is_tensor
from lapis.ops.integer_attention import reference
from lapis.ops.integer_attention.reference import AffinityTables


def integer_attention(q: Any, k: Any, v: Any, tables: AffinityTables, delay: Any = None) -> tuple[Any, Any]:
    """acc_ic = sum_j A_ij v_jc and Z_i = sum_j A_ij, `A_ij = table[h][row_exponent[h][min_j D_ij]][D_ij]`.

    q, k, v (..., H, N, C) integer codes, delay (H, N, M)  ->  acc (..., H, N, C), Z (..., H, N). The power-of-two
    readout is acc * 2**-round(log2 Z).
    """
    if is_tensor(q):
        from lapis.ops.integer_attention import eager

        return eager.integer_attention(q, k, v, tables, delay)
    return reference.integer_attention(q, k, v, tables, delay)
