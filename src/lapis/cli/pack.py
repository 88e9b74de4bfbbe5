"""`lapis pack`: write a trained network as one small file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from lapis import hub, models
from lapis._util.files import check_target
from lapis.cli.completion import MODEL
from lapis.cli.options import PATH, force_option, json_option, show
from lapis.config import AFFINITY_BITS
from lapis.errors import EXIT_OK, LapisError
from lapis.pack import save


@click.command()
@click.argument("checkpoint", type=MODEL)
@click.option("-o", "--out", type=PATH, help="File; NAME.packed.safetensors by default.")
@click.option(
    "--affinity-bits", type=click.IntRange(1, AFFINITY_BITS), help="Width of the affinities; as trained by default."
)
@force_option
@json_option
def command(checkpoint: str, out: Path | None, affinity_bits: int | None, force: bool, as_json: bool) -> int:
    """Convert CHECKPOINT and write it as one packed file: 6-bit weights, tables, class names, preprocessing.

    The file is a safetensors container that docs/format.md describes; the same network gives the same bytes.

    \b
    Example:
      lapis pack lapis_tiny.cifar10 --affinity-bits 8 -o lapis_tiny_a8.safetensors
    """
    opened = models.load(checkpoint)
    if out is None and hub.is_name(checkpoint):
        raise LapisError(f"{checkpoint} comes from the hub; say with --out where its packed file goes")
    target = opened.path.with_suffix(".packed.safetensors") if out is None and opened.path is not None else out
    check_target(target, "--out", "packed network", [opened.path], force)
    if opened.kind == "packed":
        if affinity_bits is None:
            raise LapisError(
                f"{opened.source} is packed already; `lapis info` shows what it holds, and --affinity-bits packs it "
                "again with narrower affinities"
            )
        if out is None:
            raise LapisError(f"{opened.source} is packed already; say with --out where the new file goes")
    network = opened.network
    if affinity_bits is not None:
        network = dataclasses.replace(network, config=network.config.replace(affinity_bits=affinity_bits))
    assert target is not None
    size = save(target, network)
    record = {
        "file": str(target),
        "bytes": size,
        "megabytes": size / 1e6,
        "fraction_bits": network.fraction_bits,
        "affinity_bits": network.config.affinity_bits,
        "config": network.config.to_dict(),
    }
    show(record, [f"{target}: {size:,} bytes ({size / 1e6:.2f} MB)"], as_json)
    return EXIT_OK
