"""`lapis export`: write a network as an ONNX file."""

from __future__ import annotations

from pathlib import Path

import click

from lapis import models
from lapis._util.files import check_target, write_atomically
from lapis.bridges.onnx_export import export
from lapis.cli.completion import MODEL
from lapis.cli.options import PATH, force_option, json_option, show
from lapis.errors import EXIT_OK, LapisError

SUFFIX = ".onnx"


@click.command()
@click.argument("model", type=MODEL)
@click.option("-o", "--out", type=PATH, help="File to write; NAME.onnx by default.")
@force_option
@json_option
def command(model: str, out: Path | None, force: bool, as_json: bool) -> int:
    """Write MODEL as an ONNX file, which gives the same integer logits, bit for bit, in ONNX Runtime.

    The file takes bytes (uint8) of shape (batch, S, S, 3), resized as `lapis predict` does, and gives integer_logits
    (int64) and logits (float32). Runtimes that compute int64 in 32 bits, as OpenVINO does, give wrong answers. MODEL is
    a packed file, a packaged name, a training checkpoint or a run's folder.

    \b
    Example:
      lapis export lapis_tiny.cifar10 -o lapis_tiny.onnx
    """
    if out is not None and out.suffix != SUFFIX:
        raise LapisError(
            f"--out {out} does not end in {SUFFIX}, the only format that is written; use {out.name}{SUFFIX}"
        )
    opened, target = models.load(model), out or Path(Path(model).stem + SUFFIX)
    check_target(target, "--out", "ONNX file", [opened.path], force)
    network = opened.network
    file = export(network)
    write_atomically(target, file)
    side, classes = network.config.image_size, network.config.classes
    record = {"file": str(target), "bytes": len(file), "image_size": side, "classes": classes}
    lines = [
        f"{target}: {len(file):,} bytes ({len(file) / 1e6:.2f} MB)",
        f"images: uint8 (batch, {side}, {side}, 3); integer_logits: int64 and logits: float32 (batch, {classes})",
    ]
    show(record, lines, as_json)
    return EXIT_OK
