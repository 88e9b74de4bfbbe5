"""What decided: which patches raised or lowered each of the likeliest classes, and where the network looked.

The score of a class is its logit less the mean of all logits: the softmax sees only such differences. Each tile of
patches is hidden in turn and the network runs again; a tile raised a class if hiding it lowers the score.

Attention rollout follows where the network looked, not what it read there: r = e prod_l (I + A_l) / 2 from the last
block to the first. A_l is the mean over the heads of the rows of weights, each scaled to sum to one; of weights below
zero the size counts. e is the class token, or all patches alike where the network averages them. The halves stand for
the residual path. A block whose rule gives no weights to pairs counts as one in which every token keeps to itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lapis.deploy.leak import leak_table, read
from lapis.ops.distance import l1_distance
from lapis.positions import relative_offsets
from lapis.preprocess import Pixels

if TYPE_CHECKING:
    from lapis.report.page.explain import Explained

TOP_CLASSES = 5
# One run per hidden tile. A finer grid is hidden in tiles of several patches: one alone moves no score.
MAX_TILES = 64
BATCH = 16

# Images (B, S, S, 3) to real logits (B, classes).
RunImages = Callable[[Pixels], npt.NDArray[Any]]


class Evidence(NamedTuple):
    """What each tile of `side` x `side` patches added to the scores of `classes`: values (classes, rows, columns)."""

    classes: tuple[int, ...]
    scores: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]
    side: int


def describe_occlusion(side: int) -> str:
    """How occlusion by tiles of `side` x `side` patches works, in words for the page."""
    hidden = "each patch" if side == 1 else f"each tile of {side} × {side} patches"
    return (
        f"By occlusion: {hidden} was painted in the mean colour of the image and the network ran again. "
        "A patch raised a class if hiding it lowers the score."
    )


def centred(logits: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Scores (..., classes): logits less their mean."""
    real = logits.astype(np.float64)
    return np.asarray(real - real.mean(axis=-1, keepdims=True))


def tile_side(grid: int) -> int:
    """Patches along the side of a tile that is hidden at once, of `grid` x `grid` patches."""
    return next(side for side in range(1, grid + 1) if (-(-grid // side)) ** 2 <= MAX_TILES)


def by_occlusion(run: RunImages, pixels: Pixels, logits: npt.NDArray[Any], patch_size: int) -> Evidence:
    """score - score with the tile hidden, for the top classes of `logits` (classes,); pixels (S, S, 3)."""
    grid = pixels.shape[0] // patch_size
    side = tile_side(grid)
    tiles, step = -(-grid // side), side * patch_size
    mean = np.round(pixels.reshape(-1, 3).mean(axis=0)).astype(np.uint8)
    found = []
    for start in range(0, tiles * tiles, BATCH):
        numbers = range(start, min(start + BATCH, tiles * tiles))
        batch = np.repeat(pixels[None], len(numbers), axis=0)
        for image, number in zip(batch, numbers, strict=True):
            row, column = divmod(number, tiles)
            image[row * step : (row + 1) * step, column * step : (column + 1) * step] = mean
        found.append(centred(run(batch)))
    classes = tuple(int(index) for index in np.argsort(-logits, kind="stable")[:TOP_CLASSES])
    scores = centred(logits)[list(classes)]
    values = (scores - np.concatenate(found)[:, list(classes)]).T.reshape(len(classes), tiles, tiles)
    return Evidence(classes, scores, values, side)


def rollout(explained: Explained) -> npt.NDArray[np.float64] | None:
    """The share (N,) of every token; the shares sum to one. None where no block gives weights to pairs."""
    config, recorded = explained.config, explained.attention.recorded
    if recorded is not None and all(weights is None for weights in recorded):
        return None
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
    own, recorded = np.eye(explained.config.tokens), explained.attention.recorded
    if recorded is None:
        rows = affinities(explained, block)
    else:
        weights = recorded[block]
        rows = np.zeros_like(own)[None] if weights is None else np.abs(weights)
    total = rows.sum(axis=-1, keepdims=True)
    # A query that weighs no key keeps to itself.
    return np.asarray(np.where(total > 0, rows / np.where(total > 0, total, 1.0), own).mean(axis=0))


def affinities(explained: Explained, block: int) -> npt.NDArray[Any]:
    """A (H, N, N) of a run whose affinities follow from the distances of codes, each row up to a factor of its own.

    The whole numbers of a deployed network, else real numbers.
    """
    config, source = explained.config, explained.attention
    q, k = (
        explained.trace[block, point][0].reshape(config.tokens, config.heads, -1).swapaxes(0, 1) for point in ("q", "k")
    )
    distance = np.asarray(l1_distance(q, k), dtype=np.int64)
    if source.delays is not None:
        distance += source.delays[block][relative_offsets(config.grid)].transpose(2, 0, 1)
    if source.stored is not None:
        membrane = source.stored.mantissa[block], source.stored.exponent[block].astype(np.int64)
    elif source.leak is not None:
        membrane = leak_table(source.leak.mantissa[block], source.leak.exponent[block], int(distance.max()) + 1)
    else:
        assert source.tau is not None
        nearest = distance.min(axis=-1, keepdims=True)
        return np.asarray(np.exp((nearest - distance) / source.tau[block][:, None, None]))
    u, e = (np.take_along_axis(each[:, None], distance, axis=-1) for each in membrane)
    # Affinities never rise with the distance, so the nearest key has the smallest exponent.
    return read(u, e, e.min(axis=-1, keepdims=True), config.affinity_bits)
