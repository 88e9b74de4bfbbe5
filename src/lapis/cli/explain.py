"""`lapis explain`: a page that shows how a network classified one image."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lapis.cli.completion import MODEL
from lapis.cli.options import json_option
from lapis.files import check_target
from lapis.report.page import write_page
from lapis.report.page.open import explain


@click.command()
@click.argument("model", type=MODEL)
@click.argument("image", type=click.Path())
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("explain.html"), show_default=True)
@json_option
@click.option("-q", "--quiet", is_flag=True, help="Print the page's path only.")
def command(model: str, image: str, out: Path, as_json: bool, quiet: bool) -> None:
    """Write one HTML file that shows how MODEL classified IMAGE: attention, spikes, activity and energy.

    MODEL is a packed file, a packaged name, a run's folder or a training checkpoint. IMAGE is a picture, or slice:N
    for one of the packaged CIFAR-10 images. The page needs no internet and recomputes attention from the spike times of
    this run.

    \b
    Example:
      lapis explain lapis_tiny_cifar10 cat.png -o cat.html
    """
    check_target(out, "--out")
    explained = explain(model, image)
    size = write_page(out, explained)
    best = int(explained.logits.argmax())
    answer = explained.class_names[best] if explained.class_names else f"class {best}"
    tally = explained.tally
    fired, neurons = sum(tally.fired.values()), sum(tally.neurons.values())
    if as_json:
        facts = {"page": str(out), "bytes": size, "prediction": answer, "spikes": fired, "neurons": neurons}
        click.echo(json.dumps(facts, indent=2))
    elif quiet:
        click.echo(out)
    else:
        click.echo(f"{answer}: {fired:,} of {neurons:,} neurons fired once ({100 * fired / neurons:.0f} %)")
        click.echo(f"{out}  {size / 1e6:.2f} MB, opens in any browser")
