"""`lapis demo`: check Lapis on real images."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lapis import assets, models
from lapis._util.files import check_folder
from lapis._util.hints import tool
from lapis._util.terminal import echo
from lapis.cli.completion import MODEL as MODEL_TYPE
from lapis.cli.options import PATH, json_option, step_printer
from lapis.errors import EXIT_CHECK_FAILED, EXIT_OK, LapisError
from lapis.report.demo import run_demo

MODEL = "lapis_tiny.cifar10"
# The network for photographs; it makes the pages for looking inside.
PHOTO_MODEL = "lapis_tiny.imagenet"


@click.command()
@click.option("--model", type=MODEL_TYPE, help=f"A packed file or a packaged model's name; {MODEL} by default.")
@click.option("--out", type=PATH, default=Path("demo-report"), show_default=True, help="Folder.")
@json_option
@click.option("-q", "--quiet", is_flag=True, help="Print the report's path only.")
def command(model: str | None, out: Path, as_json: bool, quiet: bool) -> int:
    """Classify, verify, count and time a trained network on real CIFAR-10 images, and write a report.

    Every figure is measured in this run: classes from the engine, equality of engine, spikes and integers, accuracy,
    energy against the dense network, speed against PyTorch FP32. Exit 1 if executors do not agree.

    \b
    Example:
      lapis demo --out demo-report
    """
    check_folder(out, "--out", [model])
    opened = models.load(model or MODEL)
    if opened.kind != "packed" or opened.path is None:
        raise LapisError(
            f"{opened.source} is {models.KINDS[opened.kind]}; the demo takes a packed file: lapis pack {model}"
        )
    report = step_printer(quiet or as_json)
    facts = run_demo(opened.path, out, report, assets.find(PHOTO_MODEL) if model is None else None)
    page = out / "index.html"
    if as_json:
        echo(json.dumps(facts | {"report": str(page)}))
    elif quiet:
        echo(page)
    report("report", str(page))
    report("next", f"{tool('lapis')} predict YOUR_PHOTO.jpg")
    return EXIT_OK if facts["checks_passed"] else EXIT_CHECK_FAILED
