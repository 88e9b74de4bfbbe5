"""`lapis bench stages`: the engine's time by stage."""

from __future__ import annotations

from pathlib import Path

import click

from lapis.bench.machine import machine
from lapis.bench.stages import NETWORKS, stages
from lapis.cli.bench.present import Findings, deliver, out_option, require_kernels, rounds_option, shapes_option
from lapis.cli.options import json_option

SHOWN = ("stage", "ms_per_image", "gmac_per_s", "share_of_limit")


@click.command()
@shapes_option()
@rounds_option()
@out_option()
@json_option
def command(shapes: tuple[str, ...], rounds: int, out: Path | None, as_json: bool) -> None:
    """Measure how much time the engine needs for each stage.

    One image on one thread. The limit of a linear layer is the multiply instruction of the kernels in use, timed from
    registers on the same core. In a quiet network few neurons fire after GELU, in a busy one
    many, and in a sparse one as few at every point as the paper's figures imply.

    \b
    Example:
      lapis bench stages --shape small
    """
    require_kernels()
    rows = [row for shape in shapes for network in NETWORKS for row in stages(shape, network, rounds)]
    findings = Findings(
        "stages", machine(), rows, SHOWN, title=lambda row: f"{row.shape}, {row.network} network, 1 thread"
    )
    deliver(findings, out, as_json)
