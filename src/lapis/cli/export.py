"""`lapis export`: write a network as an ONNX file."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lapis import models
from lapis._util.files import check_target, write_atomically
from lapis._util.terminal import echo
from lapis.bridges.onnx_export import export
from lapis.bridges.onnx_narrow import export_narrow
from lapis.cli.completion import MODEL
from lapis.cli.options import json_option
from lapis.errors import EXIT_OK, LapisError

SUFFIX = ".onnx"
# Who runs the file: how it is written, the type of its integer logits, and what must be known to run it.
RUNTIMES = {
    "onnxruntime": (export, "int64", "for ONNX Runtime; in OpenVINO it gives wrong answers: --for openvino"),
    "openvino": (
        export_narrow,
        "int32",
        "for OpenVINO: compile with INFERENCE_PRECISION_HINT f32 (docs/howto/onnx.md)",
    ),
}


@click.command()
@click.argument("model", type=MODEL)
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), help="File to write; NAME.onnx in this folder by default."
)
@click.option(
    "--for",
    "runtime",
    type=click.Choice(list(RUNTIMES)),
    default="onnxruntime",
    show_default=True,
    help="Who will run the file: OpenVINO computes 64-bit types in 32 bits, so its file has none.",
)
@json_option
def command(model: str, out: Path | None, runtime: str, as_json: bool) -> int:
    """Write MODEL as an ONNX file, which gives the same integer logits, bit for bit, in ONNX Runtime.

    The file takes bytes (uint8) of shape (batch, S, S, 3), resized as `lapis predict` does, and gives integer_logits
    (int64) and logits (float32). In OpenVINO it would give wrong answers: export with --for openvino and compile in
    float32, see docs/howto/onnx.md. MODEL is a packed file, a packaged name, a training checkpoint or a run's folder.

    \b
    Example:
      lapis export lapis_tiny_cifar10 -o lapis_tiny.onnx
      lapis export lapis_tiny_cifar10 --for openvino -o lapis_tiny_openvino.onnx
    """
    if out is not None and out.suffix != SUFFIX:
        raise LapisError(
            f"--out {out} does not end in {SUFFIX}, the only format that is written; use {out.name}{SUFFIX}"
        )
    check_target(out, "--out")
    opened = models.open(model)
    network = opened.network()
    target = out or Path(Path(model).stem + SUFFIX)
    write, kind, note = RUNTIMES[runtime]
    file = write(network)
    write_atomically(target, file)
    side, classes = network.config.image_size, network.config.classes
    record = {"file": str(target), "for": runtime, "bytes": len(file), "image_size": side, "classes": classes}
    lines = [
        f"{target}: {len(file):,} bytes ({len(file) / 1e6:.2f} MB)",
        note,
        f"images: uint8 (batch, {side}, {side}, 3); integer_logits: {kind} and logits: float32 (batch, {classes})",
    ]
    echo(*([json.dumps(record)] if as_json else lines))
    return EXIT_OK
