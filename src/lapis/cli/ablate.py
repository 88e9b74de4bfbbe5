"""`lapis ablate`: the paper's ablations, and ours of the activation coding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lapis._util.terminal import echo
from lapis.cli.completion import MODEL, RECIPE, Named
from lapis.cli.options import (
    data_folder,
    data_option,
    device_option,
    json_option,
    quiet_option,
    torch_threads_option,
    with_torch_threads,
)
from lapis.errors import EXIT_INTERRUPTED, EXIT_OK, LapisError

if TYPE_CHECKING:
    from lapis.train.studies import Study, Variant

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
@click.option("--only", metavar="NAMES", help="Variants to train, separated by commas; all by default.")
@click.option("--finished", is_flag=True, help="Train nothing: compare the runs that are finished.")
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
    only: str | None,
    finished: bool,
    settings: tuple[str, ...],
    device: str,
    threads: int | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Train the variants of STUDY under one schedule, and compare them.

    relation: the paper's four relations, ours and those of other spiking transformers, all with mean pooling. A row
    such as `ssa` starts from the first weights as they are, `ssa drawn` with queries and keys drawn anew. deployment:
    exact W32, then the recoveries with power-of-two rows at W32 and at W6. activation: unsigned, offset and signed
    spikes, and unsigned ones that start lifted. sparsity: a ladder of goals for the activity, each rung starting from
    the one before. silence: ways to silence half of the neurons: by a deadline on signed, unsigned and lifted spikes,
    and on signed ones in axes that suit it, by lowering lifted spikes again, by top-k per token, and with ReLU for
    GELU.

    The table has the mean and the range of top-1 over seeds, the activity, the energy in mJ under every convention and
    with codes sent as rate trains (rate: z spikes for the code z, convention lenient), whether q and k are compared
    free of multiplications, and the time of a training step. The same command continues a study that was stopped; with
    other --only it adds rows, and prints and draws those that it was asked for. --finished compares what is there, also
    while a study is running.

    \b
    Example:
      lapis ablate relation --data ~/data --only laplacian,dot,gaussian --set optim.epochs=1 --seeds 0,1,2
      lapis ablate relation --data ~/data --only "ssa,ssa drawn,laplacian2,laplacian2 drawn" --set model.image_size=96
    """
    with_torch_threads(threads)

    from lapis.train.studies import chosen_variants, study_named

    changes = [f"start={start}"] if start is not None else []
    changes += [f"distill.teacher={teacher}"] if teacher is not None else []
    chosen = study_named(study)
    recipe = recipe or chosen.recipe
    rows = chosen_variants(chosen.variants(recipe, [*changes, *settings]), only)
    folder = out or Path("runs") / f"ablate_{study}"
    if finished:
        records, first = _finished(rows, _seeds(seeds), folder), True
    else:
        records, first = _trained(rows, _seeds(seeds), data, folder, device, quiet)
    facts = {"study": study, "recipe": recipe, "interrupted": records is None, "out": str(folder)}
    if records is None:
        echo(f"stopped; the same command continues {folder}", error=True)
        if as_json and first:
            echo(json.dumps(facts))
        return EXIT_INTERRUPTED
    if first:
        _report(chosen, records, facts, as_json)
    return EXIT_OK


def _report(study: Study, records: list[dict[str, Any]], facts: dict[str, Any], as_json: bool) -> None:
    from lapis.train.ablate import table, write_study

    seeds = len({record["seed"] for record in records})
    title = f"{study.name}: {facts['recipe']}, {records[0]['steps']} steps, {seeds} seed{'s' * (seeds > 1)}"
    files = write_study(study, title, records, Path(facts["out"]))
    if as_json:
        echo(json.dumps({**facts, "rows": records, "files": [str(file) for file in files]}))
    else:
        echo(title, *table(study, records).split("\n"), *(f"wrote {file}" for file in files))


def _trained(
    rows: list[Variant], seeds: list[int], data: Path | None, folder: Path, device: str, quiet: bool
) -> tuple[list[dict[str, Any]] | None, bool]:
    """The records of a study, None if it was stopped; and whether this process reports them."""
    from lapis.train.ablate import run_study
    from lapis.train.distributed import join, leave

    processes = join(device)
    try:
        own = data_folder(rows[0].recipe.data.dataset, data)
        return run_study(rows, seeds, own, folder, processes, quiet), processes.first
    finally:
        leave(processes)


def _finished(rows: list[Variant], seeds: list[int], folder: Path) -> list[dict[str, Any]] | None:
    from lapis.train.ablate import finished_runs

    records = finished_runs(rows, seeds, folder)
    if not records:
        raise LapisError(f"{folder} holds no finished run of this study and these seeds; train some without --finished")
    return records


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise LapisError(f"--seeds {text!r} is not a list of numbers; write it as 0,1,2") from None
