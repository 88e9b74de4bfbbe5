"""`lapis bench events`: up to which activity a layer is faster by its events than densely."""

from __future__ import annotations

from pathlib import Path

import click

from lapis.bench.events import ACTIVITIES, break_even_rows
from lapis.bench.machine import machine
from lapis.cli.bench.present import Findings, deliver, out_option, require_kernels, rounds_option, shapes_option
from lapis.cli.options import json_option
from lapis.runtime.engine import break_even

SHOWN = ("layer", "activity", "dense_ms", "events_ms", "dense_times_events")


@click.command()
@shapes_option()
@rounds_option(9)
@out_option()
@json_option
def command(shapes: tuple[str, ...], rounds: int, out: Path | None, as_json: bool) -> None:
    """Time each linear layer by its events and densely.

    One image on one thread; both forms take turns. Where the ratio falls below 1 is the break-even, and the engine
    drives a layer by events if its model records at most that activity.

    \b
    Example:
      lapis bench events --shape small
    """
    require_kernels()
    rows = [row for shape in shapes for row in break_even_rows(shape, ACTIVITIES, rounds)]
    rule = break_even()
    note = f"this instruction set takes events up to activity {rule:.2f}" if rule else "this instruction set takes none"
    findings = Findings(
        "events", machine(), rows, SHOWN, lambda row: f"{row.shape}, 1 thread", {"break_even": rule}, (note,)
    )
    deliver(findings, out, as_json)
