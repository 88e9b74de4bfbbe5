"""Attention rollout: how much of each patch reaches the answer through the attention of all blocks.

r = e prod_l (I + A_l) / 2 from the last block to the first. A_l is the mean over the heads of the rows exp(-D / tau),
each scaled to sum to one; e is the class token, or all patches alike where the network averages them. The halves stand
for the residual path, which carries every token on as it is. Values and MLPs are not part of it: it follows where the
network looked, not what it read there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lapis.ops.l1_distance import l1_distance
from lapis.positions import relative_offsets
from lapis.report.page.explained import Explained


def rollout(explained: Explained) -> npt.NDArray[np.float64]:
    """The share (N,) of every token; the shares sum to one."""
    config = explained.config
    share = np.zeros(config.tokens)
    if config.mean_pooling:
        share[1:] = 1 / (config.tokens - 1)
    else:
        share[0] = 1.0
    for block in reversed(range(config.depth)):
        share = (share + share @ mean_attention(explained, block)) / 2
    return share


def mean_attention(explained: Explained, block: int) -> npt.NDArray[np.float64]:
    """A_l (N, N): the rows of a block, averaged over its heads."""
    config = explained.config
    q, k = (
        explained.trace[block, point][0].reshape(config.tokens, config.heads, -1).swapaxes(0, 1) for point in ("q", "k")
    )
    distance = np.asarray(l1_distance(q, k), dtype=np.float64)
    if explained.delays is not None:
        distance += explained.delays[block][relative_offsets(config.grid)].transpose(2, 0, 1)
    nearest = distance.min(axis=-1, keepdims=True)
    affinity = np.exp((nearest - distance) / explained.tau[block][:, None, None])
    return np.asarray((affinity / affinity.sum(axis=-1, keepdims=True)).mean(axis=0))
