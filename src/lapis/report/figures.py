"""Pictures of what Lapis computes, as matplotlib figures: usable in a notebook, saved by the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lapis.errors import LapisError
from lapis.spikes import encode

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Blue to yellow, even in lightness, and the same to a colour-blind reader.
COLOURS = "cividis"
HIGHLIGHT = "#d55e00"


def new_figure(width: float, height: float) -> Figure:
    """An empty figure with no window behind it; says how to get matplotlib where it is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LapisError("pictures need matplotlib: pip install 'lapis-snn[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained", dpi=120)


def raster(codes: npt.ArrayLike, window: int, title: str = "first spikes") -> Figure:
    """One dot a spike: neurons (n,) downward, the steps of the window to the right."""
    figure = new_figure(6, 3)
    axes = figure.subplots()
    draw_raster(axes, codes, window)
    axes.set_title(title)
    return figure


def draw_raster(axes: Any, codes: npt.ArrayLike, window: int, colour: str = "#0072b2", marker: str = "|") -> None:
    """The raster of one token on given axes."""
    steps, neurons = np.nonzero(encode(codes, window))
    axes.scatter(steps, neurons, marker=marker, s=26, c=colour, linewidths=1.4)
    axes.set(xlim=(-0.7, window - 0.3), xlabel="step", ylabel="channel")
    axes.invert_yaxis()


def attention_maps(
    images: npt.NDArray[np.uint8], queries: list[int], distances: npt.NDArray[Any], weights: npt.NDArray[Any]
) -> Figure:
    """For each image its query patch, the distance of every patch to it, and the attention that results.

    images (n, S, S, 3); queries: a token index each; distances and weights (n, N, N) on a square grid of N patches.
    """
    count, side = len(images), images.shape[1]
    grid = round(distances.shape[-1] ** 0.5)
    patch = side / grid
    figure = new_figure(7.2, 2.4 * count)
    rows = figure.subplots(count, 3, squeeze=False)
    for row, image, query, distance, weight in zip(rows, images, queries, distances, weights, strict=True):
        extent = (0, side, side, 0)
        row[0].imshow(image, extent=extent)
        row[1].imshow(distance[query].reshape(grid, grid), cmap=COLOURS + "_r", extent=extent)
        row[2].imshow(weight[query].reshape(grid, grid), cmap=COLOURS, extent=extent)
        y, x = divmod(query, grid)
        for axes in row:
            axes.plot(
                np.array([x, x + 1, x + 1, x, x]) * patch,
                np.array([y, y, y + 1, y + 1, y]) * patch,
                color=HIGHLIGHT,
                lw=2,
            )
            axes.set_axis_off()
    for axes, title in zip(rows[0], ("query patch", "latency distance", "attention"), strict=True):
        axes.set_title(title)
    return figure
