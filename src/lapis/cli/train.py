"""`lapis train`: run a recipe."""

from __future__ import annotations

import json
from pathlib import Path

import click
from click.core import ParameterSource

from lapis._util.files import check_folder
from lapis._util.terminal import echo
from lapis.cli import options
from lapis.cli.completion import MODEL, RECIPE
from lapis.errors import EXIT_INTERRUPTED, EXIT_OK


@click.command()
@click.argument("recipe", required=False, type=RECIPE)
@options.data_option("Folder of the dataset")
@click.option("--out", type=options.PATH, help="Folder of the run; runs/RECIPE by default.")
@click.option("--start", type=MODEL, help="First weights: a file, run, packaged or timm name.")
@click.option("--teacher", type=MODEL, help="Network to distil from, named likewise.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change the recipe, e.g. optim.lr=1e-4.")
@click.option("--resume", is_flag=True, help="Continue the run in --out, bit for bit.")
@options.device_option
@options.torch_threads_option
@click.option("--show", is_flag=True, help="Print the recipe with its settings and stop.")
@options.quiet_option
@options.json_option
def command(
    recipe: str | None,
    data: Path | None,
    out: Path | None,
    start: str | None,
    teacher: str | None,
    settings: tuple[str, ...],
    resume: bool,
    device: str,
    threads: int | None,
    show: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Train the network of RECIPE; without one, list the recipes.

    A run keeps its state, log, curves and networks in --out. Ctrl-C and SIGTERM save the state first; --resume
    continues exactly from there. For several processes or machines use torchrun, see docs/training.md.

    \b
    Example:
      lapis train smoke --out runs/smoke --set optim.epochs=1
    """
    options.with_torch_threads(threads)

    from lapis.train import recipes
    from lapis.train.distributed import join
    from lapis.train.loop import train

    if recipe is None:
        listed = {name: recipes.documentation(name).split("\n")[0] for name in recipes.names()}
        width = max(map(len, listed))
        echo(*([json.dumps(listed)] if as_json else [f"{n:<{width}}  {text}" for n, text in listed.items()]))
        return EXIT_OK
    out = out or Path("runs") / recipe
    changes = [f"start={start}"] if start is not None else []
    changes += [f"distill.teacher={teacher}"] if teacher is not None else []
    chosen = recipes.load(recipe).with_overrides([*changes, *settings])
    if show:
        echo(*json.dumps(chosen.to_dict(), indent=None if as_json else 2).split("\n"))
        return EXIT_OK
    source = click.get_current_context().get_parameter_source("data")
    if chosen.data.dataset == "sample" and source is ParameterSource.ENVIRONMENT:
        data = None  # LAPIS_DATA serves other recipes; this one is on the packaged images
    check_folder(out, "--out", [data])
    with join(device) as processes:
        summary = train(chosen, data, out, processes, resume, quiet)
    if processes.first:
        echo(json.dumps(summary) if as_json else _line(summary))
    return EXIT_INTERRUPTED if summary["interrupted"] else EXIT_OK


def _line(summary: dict[str, object]) -> str:
    if summary["interrupted"]:
        return f"{summary['recipe']}: stopped at step {summary['step']} of {summary['steps']}; continue with --resume"
    return (
        f"{summary['recipe']}: top-1 {summary['top1']:.2f} % of {summary['images']} {summary['evaluated']} images "
        f"(best {summary['best_top1']:.2f} %) after {summary['steps']} steps, {summary['seconds']:.0f} s; "
        f"files in {summary['out']}"
    )
