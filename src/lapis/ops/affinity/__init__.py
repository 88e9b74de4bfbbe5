"""A = exp(-D / tau): what a membrane of time constant tau keeps after D steps of leak."""

from __future__ import annotations

from typing import Any

from lapis.ops.affinity import reference
from lapis.ops.arrays import is_tensor


def affinity(distance: Any, tau: Any) -> Any:
    """A = exp(-D / tau_h) in (0, 1]: distance (..., H, N, M) >= 0 with tau (H,), or any shape with a single tau."""
    if is_tensor(distance):
        from lapis.ops.affinity import eager

        return eager.affinity(distance, tau)
    return reference.affinity(distance, tau)
