"""D_ij = number of channels whose codes differ."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lapis.ops.shapes import check_pair


def hamming_distance(q_codes: npt.ArrayLike, k_codes: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """D_ij = sum_c [q_ic != k_jc]: unequal first-spike latencies, without how far they are apart.

    q_codes (..., N, C) and k_codes (..., M, C), integers  ->  (..., N, M), integers in 0..C.
    """
    q, k = np.asarray(q_codes), np.asarray(k_codes)
    check_pair(q.shape, k.shape)
    count: npt.NDArray[np.int64] = (q[..., :, None, :] != k[..., None, :, :]).sum(axis=-1).astype(np.int64)
    return count
