"""`lapis bench growth`: the engine's time against the number of tokens."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from lapis.bench.growth import SIDES, draw, empty_figure, growth
from lapis.bench.machine import machine
from lapis.cli.bench.present import Findings, deliver, out_option, require_kernels, rounds_option
from lapis.cli.options import json_option

SHOWN = ("tokens", "ms_per_block", "attention_ms_per_block")


@click.command()
@click.option(
    "--side", "sides", multiple=True, type=click.IntRange(1), default=SIDES, show_default=True,
    help="Image side in pixels, a multiple of 16; may be repeated.",
)  # fmt: skip
@rounds_option()
@out_option("a CSV and a plot")
@json_option
def command(sides: tuple[int, ...], rounds: int, out: Path | None, as_json: bool) -> None:
    """Time the engine as the number of tokens grows.

    One block of ViT-S/16, one image, one thread.

    \b
    Example:
      lapis bench growth --side 224 --side 448 --out bench/results
    """
    require_kernels()
    if out is not None:
        # If matplotlib is missing, this raises an error before anything is measured.
        empty_figure()
    rows = growth(sides, rounds)
    deliver(Findings("growth", machine(), rows, SHOWN), out, as_json, draw=partial(draw, rows))
