"""How the engine's time grows with the number of tokens, as rows and as a plot."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lapis._util.files import save_figure
from lapis.bench.networks import SHAPES, busy_network, random_images
from lapis.errors import LapisError
from lapis.runtime.engine import Engine

# Sides of ViT-S images in pixels: 65 to 1,025 tokens.
SIDES = (128, 160, 192, 224, 288, 320, 384, 448, 512)
DEPTH = 2
DPI = 150


@dataclass(frozen=True)
class GrowthRow:
    """Time of one block of ViT-S at a number of tokens, on one thread."""

    tokens: int
    ms_per_block: float
    attention_ms_per_block: float


def growth(sides: Sequence[int], rounds: int) -> list[GrowthRow]:
    """One row per image side, by two blocks of ViT-S with one image."""
    return [_at(side, rounds) for side in sides]


def _at(side: int, rounds: int) -> GrowthRow:
    config = SHAPES["small"].replace(image_size=side, depth=DEPTH)
    engine = Engine(busy_network(config))
    image = random_images(config, 1)
    engine.run(image)
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        engine.run(image)
        seconds.append(time.perf_counter() - start)
    attention_ns = engine.profile(image)["attention"]
    return GrowthRow(
        tokens=config.tokens,
        ms_per_block=round(statistics.median(seconds) / DEPTH * 1e3, 3),
        attention_ms_per_block=round(attention_ns / DEPTH / 1e6, 3),
    )


def draw(rows: Sequence[GrowthRow], path: Path) -> None:
    """Time of a block against tokens, on logarithmic axes, as PNG."""
    figure = empty_figure()
    axes = figure.add_subplot()
    tokens = [row.tokens for row in rows]
    axes.loglog(tokens, [row.ms_per_block for row in rows], marker="o", label="whole block")
    axes.loglog(tokens, [row.attention_ms_per_block for row in rows], marker="o", label="attention alone")
    axes.set_xlabel("tokens N")
    axes.set_ylabel("ms per block, 1 thread")
    axes.set_xticks(tokens, [str(count) for count in tokens], minor=False)
    axes.minorticks_off()
    axes.legend()
    save_figure(path, figure, dpi=DPI)


def empty_figure() -> Any:
    """A figure without a window; the error says how to install matplotlib where it is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise LapisError("the plot needs matplotlib: pip install 'lapis-snn[plot]'") from None
    return Figure(figsize=(6, 4), layout="constrained")
