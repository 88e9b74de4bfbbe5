"""D_ij = sum_c |q_ic - k_jc|."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lapis.ops.shapes import check_pair


def l1_distance(q_codes: npt.ArrayLike, k_codes: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """D_ij = sum_c |q_ic - k_jc|: subtract, absolute value, accumulate.

    q_codes (..., N, C) and k_codes (..., M, C), integers  ->  (..., N, M), integers in 0..C*T.
    Codes and latencies give the same distance, because t = T - z.
    """
    q, k = np.asarray(q_codes).astype(np.int64), np.asarray(k_codes).astype(np.int64)
    check_pair(q.shape, k.shape)
    distance = np.zeros((*q.shape[:-1], k.shape[-2]), dtype=np.int64)
    for channel in range(q.shape[-1]):
        distance += np.abs(q[..., :, None, channel] - k[..., None, :, channel])
    return distance
