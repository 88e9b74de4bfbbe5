"""Which patches raised or lowered each of the likeliest classes of one run.

The score of a class is its logit less the mean of all logits: the softmax sees only such differences. A network that
averages its patches adds up one share per patch in its linear head, so these shares are its own account. A network that
reads its class token has no such sum; there each tile of patches is hidden in turn and the network runs again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lapis.deploy import integer
from lapis.deploy.arithmetic import Int32, add_to_stream
from lapis.deploy.network import Network
from lapis.preprocess import Pixels
from lapis.trace import Trace

TOP_CLASSES = 5
# One run per hidden tile; a finer grid is hidden in tiles of several patches.
MAX_TILES = 256
BATCH = 16

Method = Literal["head", "occlusion"]
# Images (B, S, S, 3) to real logits (B, classes).
Run = Callable[[Pixels], npt.NDArray[Any]]
# Called with the number of runs done and the number of all.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Evidence:
    """What each tile of `side` x `side` patches added to the scores of `classes`: values (classes, rows, columns).

    By the head, the values of a class and its entry of `rest` (bias and rounding) sum to its score.
    """

    method: Method
    classes: tuple[int, ...]
    scores: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]
    side: int = 1
    rest: npt.NDArray[np.float64] | None = None

    def description(self) -> str:
        """How the values were computed, in words for the page."""
        if self.method == "head":
            return (
                "By the network's own linear head, which averages the patches: the shares of all patches and the bias "
                "sum to the score of the class."
            )
        return describe_occlusion(self.side)


def describe_occlusion(side: int) -> str:
    """How occlusion by tiles of `side` x `side` patches works, in words for the page."""
    hidden = "each patch" if side == 1 else f"each tile of {side} × {side} patches"
    return (
        f"By occlusion: {hidden} was painted in the mean colour of the image and the network ran again. "
        "A patch raised a class if hiding it lowers the score."
    )


def top_classes(logits: npt.NDArray[Any]) -> tuple[int, ...]:
    """The likeliest classes, best first."""
    return tuple(int(index) for index in np.argsort(-logits, kind="stable")[:TOP_CLASSES])


def centred(logits: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Scores (..., classes): logits less their mean."""
    real = logits.astype(np.float64)
    return np.asarray(real - real.mean(axis=-1, keepdims=True))


def tile_side(grid: int) -> int:
    """Patches along the side of a tile that is hidden at once, of `grid` x `grid` patches."""
    return next(side for side in range(1, grid + 1) if (-(-grid // side)) ** 2 <= MAX_TILES)


def by_occlusion(
    run: Run, pixels: Pixels, logits: npt.NDArray[Any], patch_size: int, progress: Progress | None = None
) -> Evidence:
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
        if progress is not None:
            progress(numbers.stop, tiles * tiles)
    classes = top_classes(logits)
    scores = centred(logits)[list(classes)]
    values = (scores - np.concatenate(found)[:, list(classes)]).T.reshape(len(classes), tiles, tiles)
    return Evidence("occlusion", classes, scores, values, side)


def by_head(network: Network, pixels: Pixels, logits: npt.NDArray[Any], trace: Trace) -> Evidence:
    """The share of each patch in the scores of a network that averages its patches; `trace` is of one image.

    u = sum_p c_p / (P sigma), c_p the patch's stream less its mean over channels; logit = u W + bias.
    """
    stream = final_stream(network, pixels[None], trace)[0, 1:].astype(np.float64)
    sigma = np.sqrt(stream.mean(axis=0).var() + network.eps)
    unit = (stream - stream.mean(axis=1, keepdims=True)) / (len(stream) * sigma)
    head = network.head_weight.astype(np.float64) * 2.0**-network.head_exponent
    shares = centred(unit @ head.T)
    scores, classes = centred(logits), list(top_classes(logits))
    grid = network.config.grid
    return Evidence(
        "head",
        tuple(classes),
        scores[classes],
        shares[:, classes].T.reshape(len(classes), grid, grid),
        rest=(scores - shares.sum(axis=0))[classes],
    )


def final_stream(network: Network, images: Pixels, trace: Trace) -> Int32:
    """The residual stream (B, N, D) after the last block, rebuilt from the codes of a run on `images`."""
    stream = integer.embed(network, images)
    for index, block in enumerate(network.blocks):
        stream = add_to_stream(stream, block.proj.pre(trace[index, "readout"]))
        stream = add_to_stream(stream, block.fc2.pre(trace[index, "mlp_hidden"]))
    return stream
