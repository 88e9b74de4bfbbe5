"""`lapis bench soak`: many predictions, to check answers and memory."""

from __future__ import annotations

from pathlib import Path

import click

from lapis.bench.machine import machine
from lapis.bench.soak import soak
from lapis.cli.bench.present import Findings, deliver, out_option, report_progress, require_kernels
from lapis.cli.options import json_option
from lapis.errors import EXIT_CHECK_FAILED, EXIT_OK

SHOWN = ("predictions", "wrong", "growth_kb", "allowed_kb")


@click.command()
@click.option(
    "--predictions", type=click.IntRange(1), default=10_000, show_default=True, help="How many images to classify."
)
@out_option()
@json_option
def command(predictions: int, out: Path | None, as_json: bool) -> int:
    """Classify many images, and check that memory does not grow.

    One session of the tiny network on two threads is used. Exit 1 if an answer differs or memory grows.

    \b
    Example:
      lapis bench soak --predictions 10000
    """
    require_kernels()
    row = soak(predictions, report_progress)
    deliver(Findings("soak", machine(), [row], SHOWN, extra={"holds": row.holds}), out, as_json)
    return EXIT_OK if row.holds else EXIT_CHECK_FAILED
