"""`lapis explain`: a page that shows how a network classified one image, or that classifies the reader's own."""

from __future__ import annotations

from pathlib import Path

import click

from lapis import models
from lapis._util.files import check_target
from lapis._util.terminal import echo
from lapis.cli.completion import MODEL
from lapis.cli.options import PATH, force_option, json_option, show, split_model
from lapis.errors import LapisError
from lapis.report.page import write_page
from lapis.report.page.explain import explain
from lapis.report.page.live import write_live_page


@click.command()
@click.argument("words", nargs=-1, type=MODEL, metavar="[MODEL] IMAGE")
@click.option("-o", "--out", type=PATH, default=Path("explain.html"), show_default=True, help="Page.")
@click.option("--live", is_flag=True, help="A page with network and engine, which classifies pictures itself.")
@click.option("--no-evidence", is_flag=True, help="Do not compute which patches raised or lowered the top classes.")
@force_option
@click.option("-q", "--quiet", is_flag=True, help="Print the page's path only.")
@json_option
def command(
    words: tuple[str, ...], out: Path, live: bool, no_evidence: bool, force: bool, quiet: bool, as_json: bool
) -> None:
    """Write one HTML file that shows how MODEL classified IMAGE: what decided, attention, spikes and energy.

    MODEL is a packed file, a packaged name, a run's folder or a checkpoint; without one, the packaged network. IMAGE
    is a picture, or sample:N for a packaged CIFAR-10 image. The page needs no internet. With --live it takes pictures
    from a file, the clipboard or the camera; IMAGE, if given, comes first.

    \b
    Example:
      lapis explain sample:7 -o frog.html
      lapis explain --live -o live.html
    """
    model, images = split_model(words)
    if len(images) > 1:
        raise LapisError(f"{len(images)} images were given; a page shows one")
    image = images[0] if images else None
    if image is None and not live:
        raise LapisError("no IMAGE was given: name a picture, or use --live for a page that takes pictures itself")
    check_target(out, "--out", "page", [models.find(model), image], force)
    if image is None or live:
        size = write_live_page(out, model, image)
        lines = [
            f"{out}  {size / 1e6:.2f} MB with network and engine; it classifies pictures in any browser of 2023 on"
        ]
        record: dict[str, object] = {"page": str(out), "bytes": size}
    else:
        explained = explain(model, image, not no_evidence)
        size, answer, tally = write_page(out, explained), explained.answer, explained.tally
        fired, neurons = sum(tally.fired.values()), sum(tally.neurons.values())
        lines = [
            f"{answer}: {fired:,} of {neurons:,} values spiked ({100 * fired / neurons:.0f} %)",
            f"{out}  {size / 1e6:.2f} MB, opens in any browser",
        ]
        record = {"page": str(out), "bytes": size, "prediction": answer, "spikes": fired, "neurons": neurons}
    if quiet and not as_json:
        echo(out)
    else:
        show(record, lines, as_json)
