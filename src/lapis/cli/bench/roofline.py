"""`lapis bench roofline`: calculated times of one attention layer on GPUs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from lapis.bench.machine import machine
from lapis.bench.roofline import REACHED, TRAINING, roofline
from lapis.bench.sizes import Size
from lapis.cli.bench.present import Findings, deliver, out_option
from lapis.cli.options import json_option

SHOWN = ("work", "microseconds", "bound_by")


@click.command()
@click.option("--batch", type=click.IntRange(1), default=TRAINING.batch, show_default=True, help="Images.")
@click.option("--heads", type=click.IntRange(1), default=TRAINING.heads, show_default=True, help="Heads.")
@click.option("--tokens", type=click.IntRange(1), default=TRAINING.tokens, show_default=True, help="Tokens.")
@out_option()
@json_option
def command(batch: int, heads: int, tokens: int, out: Path | None, as_json: bool) -> None:
    """Calculate the time of one attention layer on GPUs; nothing is measured.

    From the instructions of the compiled kernels, their products and their bytes, and the limits that vendors state.
    64 channels per head.

    \b
    Example:
      lapis bench roofline --batch 256 --heads 12
    """
    size = Size(batch, heads, tokens, TRAINING.channels)
    findings = Findings(
        "roofline",
        machine(),
        roofline(size),
        SHOWN,
        title=lambda row: f"{row.gpu}, one layer, {size}",
        extra={"calculated": True, "size": dataclasses.asdict(size), "share_of_the_bound": REACHED},
        notes=["This is a calculation, not a measurement: it does not depend on the machine named above."],
    )
    deliver(findings, out, as_json)
