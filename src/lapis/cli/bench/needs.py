"""`lapis bench needs`: the GPU memory and the hours that a recipe needs, calculated."""

from __future__ import annotations

from pathlib import Path

import click

from lapis.bench.machine import machine
from lapis.cli.bench.present import Findings, deliver, out_option
from lapis.cli.completion import RECIPE
from lapis.cli.options import json_option
from lapis.models import require_torch

SHOWN = ("gpu", "gpus", "gb", "hours", "recompute_gb", "recompute_hours")


@click.command()
@click.argument("recipe", type=RECIPE)
@click.option(
    "--gpus", type=click.IntRange(1), help="GPUs that share the batch; as in the recipe's command by default."
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting of the recipe.")
@click.option("--count", is_flag=True, help="Count the saved tensors, too: torch runs the network without numbers.")
@out_option()
@json_option
def command(
    recipe: str, gpus: int | None, settings: tuple[str, ...], count: bool, out: Path | None, as_json: bool
) -> None:
    """Calculate the GPU memory and the hours that RECIPE needs; nothing is measured, and no GPU is needed.

    \b
    Example:
      lapis bench needs imagenet_base --gpus 4
    """
    require_torch("lapis bench needs")
    from lapis.bench.activations import calculated, counted
    from lapis.bench.needs import needs
    from lapis.train import recipes

    loaded = recipes.load(recipe).with_overrides(list(settings))
    rows = needs(loaded, gpus or recipes.processes(recipe))
    notes = ["This is a calculation, not a measurement: it does not depend on the machine named above."]
    extra: dict[str, object] = {"calculated": True, "recipe": recipe}
    if count:
        for again in (False, True):
            arguments = (loaded.model, loaded.optim.precision, again)
            sums, found = calculated(*arguments).per_image, counted(*arguments).per_image
            how = "recompute" if again else "plain"
            notes.append(
                f"activations of one image, {how}: {sums / 1e6:,.1f} MB calculated, {found / 1e6:,.1f} MB counted"
            )
            extra[how] = {"calculated_bytes": sums, "counted_bytes": found}
    findings = Findings("needs", machine(), rows, SHOWN, title=lambda row: recipe, extra=extra, notes=notes)
    deliver(findings, out, as_json)
