"""Figures of what Lapis computes, for notebooks and papers. Each function returns a matplotlib Figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lapis.codes import check_codes, check_tau, check_window
from lapis.energy import Estimate
from lapis.errors import LapisError
from lapis.ops.l1_distance.reference import l1_distance
from lapis.ops.row_scale.reference import scale_rows
from lapis.positions import relative_offsets
from lapis.report.energy_chart import energy_figure
from lapis.trace import POINTS, Tally

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lapis.report.page import Explained
from lapis.report.page.rollout import log_affinity

# From blue to yellow with even lightness, also for colour-blind readers.
COLOURS = "cividis"
# From Okabe and Ito's palette: a query is a square, a key a circle, so that they differ in shape as well.
QUERY, KEY, GAP = "#d55e00", "#0072b2", "#e69f00"


def new_figure(width: float, height: float) -> Figure:
    """An empty figure without a window; the error says how to install matplotlib where it is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LapisError("pictures need matplotlib: pip install 'lapis-snn[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained", dpi=120)


def raster(codes: npt.ArrayLike, window: int, title: str = "first spikes", sort: bool = False) -> Figure:
    """One mark per spike: neurons (any shape, flattened) downward, the steps of the window to the right.

    Signed codes -T..T are ON (blue) and OFF (orange) spikes. `sort` puts early neurons first and silent ones last.
    """
    check_window(window)
    flat = np.asarray(codes).reshape(-1)
    if not np.issubdtype(flat.dtype, np.integer) or (flat.size and int(np.abs(flat).max()) > window):
        raise LapisError(f"codes must be integers in {-window}..{window}")
    if sort:
        flat = flat[np.argsort(-np.abs(flat), kind="stable")]
    figure = new_figure(6, 3.2)
    axes = figure.subplots()
    for sign, colour in ((1, KEY), (-1, QUERY)):
        neurons = np.nonzero(flat * sign > 0)[0]
        axes.scatter(window - np.abs(flat[neurons]), neurons, marker="|", s=max(2.0, 3e3 / max(1, flat.size)), c=colour)
    axes.set(xlim=(-0.7, window - 0.3), ylim=(flat.size - 0.5, -0.5), xlabel="step", ylabel="neuron")
    fired = np.count_nonzero(flat)
    axes.set_title(f"{title}: {fired} of {flat.size} fire")
    return figure


def latencies(q_codes: npt.ArrayLike, k_codes: npt.ArrayLike, window: int) -> Figure:
    """First-spike times of a query and a key (C,), channel by channel, and the running sum of their differences."""
    q, k = (
        window - check_codes(codes, window, name).astype(np.int64) for codes, name in ((q_codes, "q"), (k_codes, "k"))
    )
    if q.ndim != 1 or q.shape != k.shape:
        raise LapisError(f"a query and a key of one head have the same channels; shapes are {q.shape} and {k.shape}")
    figure = new_figure(7, 4)
    times, sums = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    channel = np.arange(q.size)
    times.vlines(channel, np.minimum(q, k), np.maximum(q, k), color=GAP, lw=2.4)
    times.scatter(channel, k, marker="o", s=26, facecolors="none", edgecolors=KEY, linewidths=1.6, label="key")
    times.scatter(channel, q, marker="s", s=14, c=QUERY, label="query")
    times.set(ylim=(window + 0.7, -0.7), ylabel="first spike (step)")
    times.legend(loc="lower right", ncols=2, frameon=False)
    running = np.abs(q - k).cumsum()
    sums.step(channel, running, where="mid", color=GAP, lw=2)
    sums.set(xlabel="channel", ylabel="running sum", title=f"D = {int(running[-1]) if running.size else 0}")
    return figure


def membrane(distances: npt.ArrayLike, tau: float, chosen: int, log: bool = False) -> Figure:
    """A unit membrane that leaks by beta = exp(-1/tau) per step, and the distances of a row; one key is marked."""
    steps = np.asarray(distances, dtype=np.float64).reshape(-1)
    constant = float(check_tau([tau])[0])
    if not 0 <= chosen < steps.size:
        raise LapisError(f"key {chosen} is not in a row of {steps.size} keys; use 0..{steps.size - 1}")
    figure = new_figure(6, 3.2)
    axes = figure.subplots()
    time = np.linspace(0, max(1.0, steps.max() * 1.04), 400)
    axes.plot(time, np.exp(-time / constant), color=KEY, alpha=0.35)
    until = time[time <= steps[chosen]]
    axes.plot(until, np.exp(-until / constant), color=KEY, lw=2.2)
    affinity = float(np.exp(-steps[chosen] / constant))
    axes.scatter([steps[chosen]], [affinity], c=KEY, zorder=3)
    axes.scatter(steps, np.exp(-steps / constant), marker="|", c="0.45", s=40)
    axes.set(xlabel="leak steps", ylabel="membrane", title=f"D = {steps[chosen]:g}, A = {affinity:.3g}")
    if log:
        axes.set_yscale("log", base=2)
    return figure


def attention(explained: Explained, block: int, head: int, query: int) -> Figure:
    """One query of a run on its image: its patch, the latency distance of every patch to it, and the weights."""
    config = explained.config
    _check_index(config.depth, block, "block")
    _check_index(config.heads, head, "head")
    _check_index(config.tokens, query, "token")
    distance = row_distances(explained, block, head, query)
    weight = row_weights(explained, block, head, query)
    image, side, grid = explained.image, config.image_size, config.grid
    figure = new_figure(7.4, 2.7)
    panels = figure.subplots(1, 3)
    extent = (0, side, side, 0)
    panels[0].imshow(image, extent=extent)
    # The class token comes first and has no patch.
    panels[1].imshow(distance[1:].reshape(grid, grid), cmap=f"{COLOURS}_r", extent=extent)
    panels[2].imshow(weight[1:].reshape(grid, grid), cmap=COLOURS, extent=extent)
    for axes, title in zip(panels, ("query", "latency distance", "attention"), strict=True):
        if query:
            _frame(axes, query - 1, grid, side / grid)
        axes.set_title(title)
        axes.set_axis_off()
    name = "patch row {}, column {}".format(*divmod(query - 1, grid)) if query else "class token"
    figure.suptitle(f"block {block}, head {head}, {name}")
    return figure


def row_distances(explained: Explained, block: int, head: int, query: int) -> npt.NDArray[np.int64]:
    """D of one query to every token (N,), position delays included."""
    config = explained.config
    span = slice(head * config.head_width, (head + 1) * config.head_width)
    q, k = (explained.trace[block, point][0][:, span].astype(np.int64) for point in ("q", "k"))
    distance = np.asarray(l1_distance(q[query][None], k)[0], dtype=np.int64)
    if explained.delays is not None:
        distance += explained.delays[block, relative_offsets(config.grid)[query], head]
    return distance


def row_weights(explained: Explained, block: int, head: int, query: int) -> npt.NDArray[np.float64]:
    """W of one query to every token (N,)."""
    if explained.recorded is None:
        return np.asarray(scale_rows(log_affinity(explained, block)[head, query][None], explained.config.row_scale)[0])
    weights = explained.recorded[block].weights
    if weights is None:
        raise LapisError(
            f"relation={explained.config.relation!r} gives no weights to pairs of tokens in block {block}; "
            "lapis explain shows what it does there"
        )
    return np.asarray(weights[head, query])


def attention_maps(
    images: npt.NDArray[np.uint8], queries: list[int], distances: npt.NDArray[Any], weights: npt.NDArray[Any]
) -> Figure:
    """For each image its query patch, the distance of every patch to it, and the attention that results.

    images (n, S, S, 3); queries: one token per image; distances and weights (n, N, N) on a square grid of N patches.
    """
    count, side = len(images), images.shape[1]
    grid = round(distances.shape[-1] ** 0.5)
    figure = new_figure(7.2, 2.4 * count)
    rows = figure.subplots(count, 3, squeeze=False)
    for row, image, query, distance, weight in zip(rows, images, queries, distances, weights, strict=True):
        extent = (0, side, side, 0)
        row[0].imshow(image, extent=extent)
        row[1].imshow(distance[query].reshape(grid, grid), cmap=f"{COLOURS}_r", extent=extent)
        row[2].imshow(weight[query].reshape(grid, grid), cmap=COLOURS, extent=extent)
        for axes in row:
            _frame(axes, query, grid, side / grid)
            axes.set_axis_off()
    for axes, title in zip(rows[0], ("query patch", "latency distance", "attention"), strict=True):
        axes.set_title(title)
    return figure


def activity(tally: Tally) -> Figure:
    """The share of neurons that fired, block by block and point by point, with its number in every cell."""
    points = [point for point in POINTS if any(key[1] == point for key in tally.fired)]
    if not points:
        raise LapisError("the tally holds nothing; add a trace to it first")
    blocks = tally.blocks()
    shares = np.array([[tally.activity(point, block) for block in range(blocks)] for point in points])
    figure = new_figure(1.6 + 0.52 * blocks, 0.9 + 0.4 * len(points))
    axes = figure.subplots()
    axes.imshow(shares, cmap=COLOURS, vmin=0, vmax=1, aspect="auto")
    for (row, column), share in np.ndenumerate(shares):
        colour = "black" if share > 0.5 else "white"
        axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", color=colour, fontsize=8)
    axes.set_yticks(range(len(points)), [point.replace("_", " ") for point in points])
    axes.set_xticks(range(blocks))
    axes.set(xlabel="block", title=f"% of neurons that fire, {tally.images} image{'s' if tally.images != 1 else ''}")
    return figure


def energy(estimate: Estimate, title: str = "") -> Figure:
    """The energy of every operator, in the network and in the dense one, on a logarithmic axis."""
    return energy_figure(estimate, title)


def _frame(axes: Any, patch: int, grid: int, side: float) -> None:
    y, x = divmod(patch, grid)
    corners = np.array([(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1), (x, y)]) * side
    axes.plot(corners[:, 0], corners[:, 1], color=QUERY, lw=2)


def _check_index(count: int, index: int, what: str) -> None:
    if not 0 <= index < count:
        raise LapisError(f"{what} {index} does not exist; use 0..{count - 1}")
