"""`lapis bench memory`: the memory that attention needs in addition to its inputs and result, or that a model needs."""

from __future__ import annotations

from pathlib import Path

import click

from lapis.bench.footprint import footprints
from lapis.bench.machine import machine
from lapis.bench.sizes import MEMORY_SIZES, Size
from lapis.cli.bench.present import Findings, deliver, out_option, require_kernels, rounds_option
from lapis.cli.completion import MODEL
from lapis.cli.options import json_option
from lapis.models import require_torch

SHOWN = ("batch", "heads", "tokens", "channels", "way", "extra_mb")
SHOWN_OF_MODEL = ("form", "weights_mb", "working_mb", "times_file", "ms_per_image", "times_usual")


@click.command()
@click.option(
    "--size", "sizes", type=click.IntRange(1), nargs=4, multiple=True, metavar="B H N C",
    default=[(size.batch, size.heads, size.tokens, size.channels) for size in MEMORY_SIZES],
    help="Images, heads, tokens, channels; may be repeated. Default: 8 12 197 64, and 1 1 N 64 for N from 512 to 4096.",
)  # fmt: skip
@click.option("--model", type=MODEL, help="Measure this model as it is loaded, instead of attention.")
@rounds_option()
@out_option()
@json_option
def command(
    sizes: tuple[tuple[int, int, int, int], ...], model: str | None, rounds: int, out: Path | None, as_json: bool
) -> None:
    """Measure the memory that attention needs, or a loaded model.

    This is the peak memory without inputs and result, of three ways to compute it, each in its own process. The
    broadcast way is left out if it would need more than 2 GB. With --model it is the memory of the engine's weights and
    tables in their usual form and with low memory, and the time per image of both, in turns on one thread.

    \b
    Example:
      lapis bench memory --size 1 1 2048 64
      lapis bench memory --model lapis_tiny_cifar10
    """
    if model is not None:
        require_kernels()
        rows_of_model = footprints(model, rounds)
        title = f"{model}, a file of {rows_of_model[0].file_mb:.2f} MB"
        deliver(Findings("footprint", machine(), rows_of_model, SHOWN_OF_MODEL, lambda row: title), out, as_json)
        return
    require_torch("lapis bench memory")
    from lapis.bench.memory import peaks

    require_kernels()
    rows = list(peaks([Size(*size) for size in sizes]))
    deliver(Findings("memory", machine(), rows, SHOWN), out, as_json)
