"""`lapis explain`: a page that shows how a network classified one image, or that classifies the reader's own."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path

import click

from lapis._util.files import check_target
from lapis._util.progress import Display
from lapis._util.terminal import echo
from lapis.cli.completion import MODEL
from lapis.cli.options import json_option
from lapis.errors import LapisError
from lapis.report.page import write_page
from lapis.report.page.explain import explain
from lapis.report.page.live import write_live_page

# Progress is shown only where there is something to wait for.
PATIENCE_SECONDS = 2.0


@click.command()
@click.argument("model", type=MODEL)
@click.argument("image", type=click.Path(), required=False)
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("explain.html"), show_default=True)
@click.option(
    "--live",
    is_flag=True,
    help="Put network and engine into the page: it classifies pictures in the browser. IMAGE, if given, comes first.",
)
@click.option(
    "--evidence/--no-evidence",
    default=True,
    show_default=True,
    help="Compute which patches raised or lowered the top classes; by occlusion it takes one run per patch.",
)
@json_option
@click.option("-q", "--quiet", is_flag=True, help="Print the page's path only.")
def command(model: str, image: str | None, out: Path, live: bool, evidence: bool, as_json: bool, quiet: bool) -> None:
    """Write one HTML file that shows how MODEL classified IMAGE: what decided, attention, spikes and energy.

    MODEL is a packed file, a packaged name, a run's folder or a training checkpoint. IMAGE is a picture, or sample:N
    for one of the packaged CIFAR-10 images. The page needs no internet. It computes attention from the spike times of
    this run, or shows the weights recorded in it where the relation has no deployed form. With --live
    the page takes pictures itself, from a file, the clipboard or the camera.

    \b
    Example:
      lapis explain lapis_tiny_cifar10 cat.png -o cat.html
      lapis explain --live lapis_tiny_cifar10 -o live.html
    """
    check_target(out, "--out")
    if live:
        _write_live(model, image, out, as_json, quiet)
    elif image is None:
        raise LapisError("no IMAGE was given: name a picture, or use --live for a page that takes pictures itself")
    else:
        _write_one(model, image, out, evidence, as_json, quiet)


def _write_live(model: str, image: str | None, out: Path, as_json: bool, quiet: bool) -> None:
    size = write_live_page(out, model, image)
    if as_json:
        echo(*json.dumps({"page": str(out), "bytes": size}, indent=2).split("\n"))
    elif quiet:
        echo(out)
    else:
        echo(f"{out}  {size / 1e6:.2f} MB with network and engine; it classifies pictures in any browser of 2023 on")


def _write_one(model: str, image: str, out: Path, evidence: bool, as_json: bool, quiet: bool) -> None:
    with ExitStack() as stack:
        shown: list[Display] = []
        started = time.monotonic()

        def progress(done: int, total: int) -> None:
            if not shown and time.monotonic() - started > PATIENCE_SECONDS and done < total:
                shown.append(stack.enter_context(Display("evidence", total, quiet=quiet or as_json)))
            for display in shown:
                display.update(done)

        explained = explain(model, image, evidence, progress)
    size = write_page(out, explained)
    best = int(explained.logits.argmax())
    answer = explained.class_names[best] if explained.class_names else f"class {best}"
    tally = explained.tally
    fired, neurons = sum(tally.fired.values()), sum(tally.neurons.values())
    if as_json:
        facts = {"page": str(out), "bytes": size, "prediction": answer, "spikes": fired, "neurons": neurons}
        echo(*json.dumps(facts, indent=2).split("\n"))
    elif quiet:
        echo(out)
    else:
        echo(f"{answer}: {fired:,} of {neurons:,} values spiked ({100 * fired / neurons:.0f} %)")
        echo(f"{out}  {size / 1e6:.2f} MB, opens in any browser")
