"""`lapis finetune`: a network for your own images, from a folder to a packed file and a report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lapis import models
from lapis._util.files import check_folder
from lapis._util.metrics import WATCHED_IMAGES
from lapis._util.progress import Display
from lapis._util.terminal import echo
from lapis.cli import options
from lapis.cli.completion import MODEL
from lapis.data.class_folders import open_class_folders
from lapis.energy.estimate import describe
from lapis.errors import EXIT_INTERRUPTED, EXIT_OK, LapisError
from lapis.report.finetune import FineTuneResults, answer_images, write_finetune_page
from lapis.report.page.page import engine_name
from lapis.runtime.session import Session

if TYPE_CHECKING:
    from lapis.train.finetune import FineTuned
    from lapis.train.plan import Plan

REPORT_FILE = "report.html"


@click.command()
@click.argument("folder", type=options.PATH)
@click.option(
    "--start",
    type=MODEL,
    default=models.DEFAULT_MODEL,
    show_default=True,
    help="First weights: a file, run, packaged or timm name.",
)
@click.option("--teacher", type=MODEL, help="Network to distil from; it must know the same classes.")
@click.option("--out", type=options.PATH, help="Folder to write; runs/finetune_NAME by default.")
@click.option("--epochs", type=click.FloatRange(0, min_open=True), help="Epochs of the first stage; more are shorter.")
@click.option("--fast", is_flag=True, help="Fit the head only, in about a minute, for a few points less.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting of every stage.")
@options.device_option
@options.torch_threads_option
@options.quiet_option
@options.json_option
def command(
    folder: Path,
    start: str,
    teacher: str | None,
    out: Path | None,
    epochs: float | None,
    fast: bool,
    settings: tuple[str, ...],
    device: str,
    threads: int | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Fine-tune a network on the images of FOLDER, pack it and write a report.

    FOLDER has one folder per class (FOLDER/cat/1.jpg), or train/ and val/ with such folders. Without val/ a fifth of
    each class is held out for the test. A deployed start is trained as it is, with a new head; any other goes through
    exact rows, then power-of-two rows with a spiking readout, then 6-bit weights. The plan is printed first. Ctrl-C
    saves; the same command continues.

    \b
    Example:
      lapis finetune pictures --epochs 10
    """
    options.with_torch_threads(threads)

    from lapis.train.distributed import join
    from lapis.train.finetune import expected_minutes, finetune, is_started
    from lapis.train.plan import Choices, make_plan

    check_folder(out or Path("runs"), "--out", [folder])
    images = open_class_folders(folder)
    name = folder.resolve().name or "network"
    choices = Choices(epochs, None if teacher is None else models.load(teacher), settings, fast)
    plan = make_plan(folder, images, models.load(start), out or Path("runs") / f"finetune_{name}", name, choices)
    started = is_started(plan)

    hidden = quiet or as_json
    report = options.step_printer(hidden)
    _print_plan(plan, started, report)
    with join(device) as processes:
        if processes.world > 1:
            raise LapisError("lapis finetune runs in one process; use `lapis train` under torchrun for several")
        if not started and not hidden:
            minutes = expected_minutes(plan, processes)
            about = "about a minute" if minutes > 0.5 else "seconds"
            report("time", f"about {minutes:.0f} minutes" if minutes >= 1.5 else about)
        result = finetune(plan, processes, quiet, report)
    if result is None:
        echo(f"stopped; the same command continues {plan.out}", error=True)
        if as_json:
            echo(json.dumps({"name": plan.name, "interrupted": True, "out": str(plan.out)}))
        return EXIT_INTERRUPTED
    shown = _finish(plan, result, threads or 1, quiet)
    options.show(shown, _lines(shown), as_json)
    return EXIT_OK


def _print_plan(plan: Plan, started: bool, report: Callable[[str, str], None]) -> None:
    images = plan.images
    names = ", ".join(images.classes[:6]) + ", ..." * (len(images.classes) > 6)
    held = "a fifth of each class, by file name" if images.split else "the folder's own"
    report("images", f"{len(images.train)} to train on, {len(images.held_out)} held out ({held})")
    report("classes", f"{len(images.classes)}: {names}")
    first = next(iter(plan.stages.values()))
    report("start", f"{plan.source}, {first.model.image_size} px, with a new head fitted to these classes")
    if plan.fast:
        report("fast", "only the head is fitted; training usually adds a few points: leave out --fast")
    for number, (stage, recipe) in enumerate([] if plan.fast else plan.stages.items(), start=1):
        report(
            f"stage {number}",
            f"{stage}: {recipe.optim.epochs:g} epochs, {plan.steps(stage)} steps of {recipe.optim.batch} images, "
            f"rate {recipe.optim.lr:.2g}{', with a teacher' * bool(recipe.distill.teacher)}",
        )
    report("memory", f"about {plan.memory_bytes() / 1e9:.1f} GB")
    report("files", f"{plan.out}{' (continued)' * started}")


def _finish(plan: Plan, result: FineTuned, threads: int, quiet: bool) -> dict[str, Any]:
    """Test the packed file on the held-out images and write the report; what it says, with its path."""
    session, held_out = Session(result.file, threads), plan.images.held_out
    with Display("test", len(held_out), quiet=quiet) as display:
        answers = answer_images(session, held_out, WATCHED_IMAGES, lambda done, count: display.update(done))
    about = {
        "name": plan.name,
        "folder": str(plan.folder),
        "start": plan.source,
        "train_images": len(plan.images.train),
        "held_out_images": len(held_out),
        "split": plan.images.split,
        "fast": plan.fast,
        "engine": engine_name(session),
    }
    stages = [
        {
            "stage": stage,
            "folder": str(plan.stage_folder(stage)),
            "epochs": recipe.optim.epochs,
            "batch": recipe.optim.batch,
            "lr": recipe.optim.lr,
            **{name: result.stages[stage][name] for name in ("steps", "seconds", "top1", "images", "unreadable")},
        }
        for stage, recipe in plan.stages.items()
        if stage in result.stages
    ]
    report = plan.out / REPORT_FILE
    results = FineTuneResults(result.file, session.config, session.preprocess, held_out, answers, stages, about)
    return write_finetune_page(report, results) | {"report": str(report)}


def _lines(shown: dict[str, Any]) -> list[str]:
    accuracy, energy = shown["accuracy"], shown["energy"]
    low, high = shown["interval95"]
    weakest = min((row for row in shown["classes"] if row["images"]), key=lambda row: row["right"] / row["images"])
    fast = [f"{'fast':<9} only the head was fitted; training usually adds a few points: leave out --fast to go on"]
    return [
        f"{'held out':<9} {accuracy['top1']:.2f} % of {accuracy['images']} images right (95 % interval {low:.0f} to "
        f"{high:.0f} %); weakest class: {weakest['name']}, {weakest['right']} of {weakest['images']}",
        f"{'energy':<9} {describe(energy, shown['int8_ratio'])}",
        f"{'packed':<9} {shown['file']}, {shown['bytes']:,} bytes",
        f"{'report':<9} {shown['report']}",
        *(fast if shown["fast"] else []),
    ]
