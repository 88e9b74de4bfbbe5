"""D_ij = sum_c (q_ic - k_jc)**2."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lapis.ops.shapes import check_pair


def squared_distance(q_codes: npt.ArrayLike, k_codes: npt.ArrayLike) -> npt.NDArray[Any]:
    """D_ij = sum_c (q_ic - k_jc)**2.

    q_codes (..., N, C) and k_codes (..., M, C), integers  ->  (..., N, M), integers in 0..C*T*T.
    """
    q: npt.NDArray[Any] = np.asarray(q_codes).astype(np.int64)
    k: npt.NDArray[Any] = np.asarray(k_codes).astype(np.int64)
    check_pair(q.shape, k.shape)
    return np.asarray(((q[..., :, None, :] - k[..., None, :, :]) ** 2).sum(axis=-1))
