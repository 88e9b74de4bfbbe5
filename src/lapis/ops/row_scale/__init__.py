"""Affinities A = exp(-D / tau), and their rows scaled to a mass of one: exactly, or by the nearest power of two."""

from __future__ import annotations

from typing import Any

from lapis.config import RowScale
from lapis.ops.arrays import is_tensor
from lapis.ops.row_scale import reference


def scale_rows(log_affinity: Any, row_scale: RowScale = "pow2") -> Any:
    """W_ij = A_ij / Z_i ("exact") or A_ij 2**-round(log2 Z_i) ("pow2"), Z_i = sum_j A_ij; ln A (..., N, M)."""
    if is_tensor(log_affinity):
        from lapis.ops.row_scale import eager

        return eager.scale_rows(log_affinity, row_scale)
    return reference.scale_rows(log_affinity, row_scale)


def affinity(distance: Any, tau: Any) -> Any:
    """A = exp(-D / tau_h) in (0, 1]: distance (..., H, N, M) >= 0 with tau (H,), or any shape with a single tau."""
    if is_tensor(distance):
        from lapis.ops.row_scale import eager

        return eager.affinity(distance, tau)
    return reference.affinity(distance, tau)
