"""D_ij = number of channels whose codes differ, and its surrogate gradient, by the native library."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lapis import native
from lapis.ops.arrays import as_u8
from lapis.ops.l1_distance.native import Float, distance, distance_backward


def hamming_distance(q_codes: npt.ArrayLike, k_codes: npt.ArrayLike, threads: int = 1) -> npt.NDArray[np.int32]:
    """D_ij = sum_c [q_ic != k_jc]: q (..., N, C), k (..., M, C) of integers 0..255  ->  (..., N, M) int32."""
    return distance(native.HAMMING, as_u8(q_codes, "q"), as_u8(k_codes, "k"), np.dtype(np.int32), threads)


def hamming_distance_backward(grad: Float, q_codes: Any, k_codes: Any, threads: int = 1) -> tuple[Float, Float]:
    """The surrogate sign(q_ic - k_jc) [|q_ic - k_jc| <= 1] for the slope; codes u8 or integer-valued float32."""
    return distance_backward(native.HAMMING, grad, np.asarray(q_codes), np.asarray(k_codes), threads)
