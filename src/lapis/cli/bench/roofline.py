"""`lapis bench roofline`: calculated times of one attention layer on GPUs."""

from __future__ import annotations

import dataclasses
import json

import click

from lapis.bench.roofline import REACHED, TRAINING, roofline
from lapis.bench.sizes import Size
from lapis.cli.options import json_option


@click.command()
@click.option("--batch", type=click.IntRange(1), default=TRAINING.batch, show_default=True, help="Images.")
@click.option("--heads", type=click.IntRange(1), default=TRAINING.heads, show_default=True, help="Heads.")
@click.option("--tokens", type=click.IntRange(1), default=TRAINING.tokens, show_default=True, help="Tokens.")
@json_option
def command(batch: int, heads: int, tokens: int, as_json: bool) -> None:
    """Calculate the time of one attention layer on GPUs; nothing is measured.

    From the instructions of the compiled kernels, their products and their bytes, and the limits that vendors state.
    64 channels per head.

    \b
    Example:
      lapis bench roofline --batch 256 --heads 12
    """
    size = Size(batch, heads, tokens, TRAINING.channels)
    rows = roofline(size)
    if as_json:
        facts = {"calculated": True, "size": dataclasses.asdict(size), "share_of_the_bound": REACHED}
        click.echo(json.dumps(facts | {"rows": [dataclasses.asdict(row) for row in rows]}, indent=2))
        return
    click.echo(f"a calculation, not a measurement: one layer, {size}")
    for row in rows:
        click.echo(f"{row.gpu:<14}{row.work:<32}{row.microseconds:>10,.0f} us   bound by {row.bound_by}")
