"""Laplacian attention in integers: tables of fixed-point affinities, integer row sums, integer value sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from lapis import native as library
from lapis.ops.arrays import is_tensor, shared_u8
from lapis.ops.integer_attention import native, reference
from lapis.ops.integer_attention.reference import AffinityTables


def integer_attention(q: Any, k: Any, v: Any, tables: AffinityTables, delay: Any = None) -> tuple[Any, Any]:
    """acc_ic = sum_j A_ij v_jc and Z_i = sum_j A_ij, `A_ij = table[h][row_exponent[h][min_j D_ij]][D_ij]`.

    q, k, v (..., H, N, C) integer codes, delay (H, N, M)  ->  acc (..., H, N, C), Z (..., H, N). The power-of-two
    readout is acc * 2**-round(log2 Z).
    """
    if is_tensor(q):
        from lapis.ops.integer_attention import eager

        return eager.integer_attention(q, k, v, tables, delay)
    codes = shared_u8(q, k) if library.available() else None
    if codes is None or np.min(v, initial=0) < 0 or np.shape(v)[-1:] != np.shape(q)[-1:]:
        return reference.integer_attention(q, k, v, tables, delay)
    return native.integer_attention(*codes, v, tables, delay)
