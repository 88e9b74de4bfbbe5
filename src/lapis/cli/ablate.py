"""`lapis ablate`: the paper's ablations, and ours of the activation modes."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lapis.cli.completion import MODEL, RECIPE, Named
from lapis.cli.options import (
    data_option,
    device_option,
    json_option,
    quiet_option,
    torch_threads_option,
    with_torch_threads,
)
from lapis.errors import EXIT_INTERRUPTED, EXIT_OK, LapisError
from lapis.terminal import say

STUDIES = ("relation", "deployment", "activation", "sparsity", "silence")
STUDY = Named("study", lambda: STUDIES)


@click.command()
@click.argument("study", type=STUDY)
@click.option(
    "--recipe", type=RECIPE, help="The recipe to vary; cifar10_tiny by default, cifar10_tiny_sparse for sparsity."
)
@data_option("Folder of the dataset")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the study; runs/ablate_STUDY by default.")
@click.option("--start", type=MODEL, help="First weights of every variant; later stages start from earlier ones.")
@click.option("--teacher", type=MODEL, help="Teacher of every variant; an empty string switches distillation off.")
@click.option("--seeds", default="0", show_default=True, help="Seeds, separated by commas; each trains every variant.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting of every variant.")
@device_option
@torch_threads_option
@quiet_option
@json_option
def command(
    study: str,
    recipe: str | None,
    data: Path | None,
    out: Path | None,
    start: str | None,
    teacher: str | None,
    seeds: str,
    settings: tuple[str, ...],
    device: str,
    threads: int | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Train the variants of STUDY under one schedule, and compare them.

    relation: Laplacian, dot product, Gaussian, Hamming. deployment: exact W32, then the recoveries with power-of-two
    rows at W32 and at W6. activation: unsigned, offset and signed spikes, and unsigned ones that start lifted.
    sparsity: a ladder of goals for the activity, each rung starting from the one before. silence: ways to silence half
    of the neurons: by a deadline on signed, unsigned and lifted spikes, by top-k per token, and with ReLU for GELU. The
    same command continues a study that was stopped.

    \b
    Example:
      lapis ablate relation --data ~/data --start deit.safetensors --set optim.epochs=0.5 --seeds 0,1,2
    """
    with_torch_threads(threads)

    from lapis.train.ablate import run_study, table, write_study
    from lapis.train.distributed import join, leave
    from lapis.train.studies import study_named

    changes = [f"start={start}"] if start is not None else []
    changes += [f"distill.teacher={teacher}"] if teacher is not None else []
    chosen = study_named(study)
    recipe = recipe or chosen.recipe
    rows = chosen.variants(recipe, [*changes, *settings])
    numbers = _seeds(seeds)
    folder = out or Path("runs") / f"ablate_{study}"
    processes = join(device)
    try:
        records = run_study(rows, numbers, data, folder, processes, quiet)
    finally:
        leave(processes)
    facts = {"study": study, "recipe": recipe, "interrupted": records is None, "out": str(folder)}
    if records is None:
        say(f"stopped; the same command continues {folder}", error=True)
        if as_json and processes.first:
            say(json.dumps(facts))
        return EXIT_INTERRUPTED
    if processes.first:
        title = f"{study}: {recipe}, {records[0]['steps']} steps, {len(numbers)} seed{'s' * (len(numbers) > 1)}"
        files = write_study(chosen, title, records, folder)
        if as_json:
            say(json.dumps({**facts, "rows": records, "files": [str(file) for file in files]}))
        else:
            say(title, *table(chosen, records).split("\n"), *(f"wrote {file}" for file in files))
    return EXIT_OK


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise LapisError(f"--seeds {text!r} is not a list of numbers; write it as 0,1,2") from None
