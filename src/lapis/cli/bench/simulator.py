"""`lapis bench simulator`: the spike simulator in C beside the one in numpy."""

from __future__ import annotations

from pathlib import Path

import click

from lapis.bench.machine import machine
from lapis.bench.networks import SHAPES
from lapis.bench.simulator import Subject, simulator_rows
from lapis.cli.bench.present import Findings, deliver, out_option, require_kernels, rounds_option
from lapis.cli.completion import MODEL
from lapis.cli.options import json_option

SHOWN = ("simulator", "ms_per_image", "cpu_ms_per_image", "times_ours", "target", "spikes", "operations")


@click.command()
@click.option(
    "--shape", "shapes", multiple=True, type=click.Choice(list(SHAPES)), default=("tiny",), show_default=True,
    help="small: ViT-S/16 at 224 pixels, half a minute per round; tiny: lapis_tiny at 96. May be repeated.",
)  # fmt: skip
@click.option(
    "--model",
    "names",
    multiple=True,
    type=MODEL,
    help="Time this model on a packaged picture instead; may be repeated.",
)
@rounds_option(5)
@out_option()
@json_option
def command(shapes: tuple[str, ...], names: tuple[str, ...], rounds: int, out: Path | None, as_json: bool) -> None:
    """Time the spike simulator in C and in numpy.

    One image of a network that fires as the paper's figures imply, on one thread; all take turns. Before that their
    spikes, codes, answers and counts are compared, and times are given only if all are equal. Several models show how
    the time falls with the spikes.

    \b
    Example:
      lapis bench simulator --shape tiny --rounds 9
      lapis bench simulator --model lapis_tiny_cifar10_busy --model lapis_tiny_cifar10
    """
    require_kernels()
    subjects = [Subject.of_model(name) for name in names] or [Subject.of_shape(shape) for shape in shapes]
    rows = list(simulator_rows(subjects, rounds))
    findings = Findings("simulator", machine(), rows, SHOWN, lambda row: f"{row.network}, 1 thread")
    deliver(findings, out, as_json)
