"""Attention rollout: how much of each patch reaches the answer through the attention of all blocks.

r = e prod_l (I + A_l) / 2 from the last block to the first. A_l is the mean over the heads of the rows of weights, each
scaled to sum to one; of weights below zero the size counts. e is the class token, or all patches alike where the
network averages them. The halves stand for the residual path, which carries every token on as it is. Values and MLPs
are not part of it: it follows where the network looked, not what it read there. A block whose rule gives no weights to
pairs counts as one in which every token keeps to itself.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lapis.deploy.leak import MANTISSA_BITS
from lapis.ops.l1_distance import l1_distance
from lapis.positions import relative_offsets
from lapis.report.page.explained import Explained

Array = npt.NDArray[np.float64]


def rollout(explained: Explained) -> Array | None:
    """The share (N,) of every token; the shares sum to one. None where no block gives weights to pairs."""
    config = explained.config
    if explained.recorded is not None and all(block.weights is None for block in explained.recorded):
        return None
    share = np.zeros(config.tokens)
    if config.mean_pooling:
        share[1:] = 1 / (config.tokens - 1)
    else:
        share[0] = 1.0
    for block in reversed(range(config.depth)):
        share = (share + share @ mean_attention(explained, block)) / 2
    return share


def mean_attention(explained: Explained, block: int) -> Array:
    """A_l (N, N): the rows of a block, averaged over its heads."""
    rows = _sizes(explained, block)
    total = rows.sum(axis=-1, keepdims=True)
    # A query that weighs no key keeps to itself.
    own = np.eye(explained.config.tokens)
    return np.asarray(np.where(total > 0, rows / np.where(total > 0, total, 1.0), own).mean(axis=0))


def _sizes(explained: Explained, block: int) -> Array:
    """Rows (H, N, N) that are proportional to the sizes of the weights."""
    if explained.recorded is not None:
        weights = explained.recorded[block].weights
        tokens = explained.config.tokens
        return np.zeros((explained.config.heads, tokens, tokens)) if weights is None else np.abs(weights)
    log_a = log_affinity(explained, block)
    return np.asarray(np.exp(log_a - log_a.max(axis=-1, keepdims=True)))


def log_affinity(explained: Explained, block: int) -> Array:
    """ln A (H, N, N) of a run whose affinities follow from the distances of codes."""
    config = explained.config
    q, k = (
        explained.trace[block, point][0].reshape(config.tokens, config.heads, -1).swapaxes(0, 1) for point in ("q", "k")
    )
    distance = np.asarray(l1_distance(q, k), dtype=np.int64)
    if explained.stored is not None:
        mantissa, exponent = (each[block].astype(np.float64) for each in explained.stored)
        stored = np.log(mantissa) - (MANTISSA_BITS + exponent) * np.log(2.0)
        return np.take_along_axis(stored[:, None], distance, axis=-1)
    assert explained.tau is not None
    if explained.delays is not None:
        distance += explained.delays[block][relative_offsets(config.grid)].transpose(2, 0, 1)
    return np.asarray(-distance / explained.tau[block][:, None, None])
