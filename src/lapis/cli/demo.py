"""`lapis demo`: check Lapis on real images."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from lapis import assets, models, pack
from lapis._util.files import check_folder
from lapis._util.hints import install_command, tool
from lapis._util.machine import processor
from lapis._util.terminal import echo
from lapis.cli.completion import MODEL as MODEL_TYPE
from lapis.cli.options import json_option
from lapis.data.packaged import CIFAR10_CLASSES, load_sample
from lapis.errors import EXIT_CHECK_FAILED, EXIT_OK, LapisError
from lapis.report import demo as checks
from lapis.report.demo import DemoResults, Pages, facts, write_report
from lapis.report.page import write_page
from lapis.report.page.explain import explain_network
from lapis.report.page.live import write_live_page
from lapis.report.page.page import int8_ratio
from lapis.runtime.accuracy import evaluate_session

MODEL = "lapis_tiny.cifar10"
# The network for photographs, where the build has one; it makes the pages for looking inside.
PHOTO_MODEL = "lapis_tiny.imagenet"
SHOWN = 12
# Activities settle to the second digit within this many images.
WATCHED = 64

ReportLine = Callable[[str, str], None]


@click.command()
@click.option("--model", type=MODEL_TYPE, help=f"A packed file or a packaged model's name; {MODEL} by default.")
@click.option("--train", is_flag=True, help="First train the smoke recipe (about a minute), convert it and pack it.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("demo-report"), show_default=True, help="Folder.")
@json_option
@click.option("-q", "--quiet", is_flag=True, help="Print the report's path only.")
def command(model: str | None, train: bool, out: Path, as_json: bool, quiet: bool) -> int:
    """Classify, verify, count and time a trained network on real CIFAR-10 images, and write a report.

    Every figure is measured in this run: classes from the engine, equality of engine, spikes and integers, accuracy,
    energy against the dense network, speed against PyTorch FP32. Exit 1 if executors do not agree.

    \b
    Example:
      lapis demo --out demo-report
    """
    if train and model is not None:
        raise LapisError(f"--train makes its own model; leave out --train to use {model}, or leave out --model")
    silent = quiet or as_json

    def report(step: str, line: str) -> None:
        if not silent:
            echo(f"{step:<9} {line}")

    started = time.perf_counter()
    check_folder(out, "--out", [model])
    packaged = None if train else _packaged(model)
    if packaged is not None:
        photo_model = assets.find(PHOTO_MODEL) if model is None else None
        results = run_checks(packaged, "", out, started, report, photo_model)
    else:
        if not train:
            report("model", f"{MODEL} is not in this build; a small model is trained instead, as with --train")
        path, training = train_smoke(out, report, silent)
        results = run_checks(path, training, out, started, report)
    report_file = out / "index.html"
    write_report(report_file, results)
    if as_json:
        echo(json.dumps(facts(results) | {"report": str(report_file)}))
    elif quiet:
        echo(report_file)
    else:
        report("report", str(report_file))
        report("next", f"{tool('lapis')} predict YOUR_PHOTO.jpg")
    return EXIT_OK if results.equality.passed else EXIT_CHECK_FAILED


def run_checks(
    path: Path, training: str, out: Path, started: float, report: ReportLine, photo_model: Path | None = None
) -> DemoResults:
    """Run all checks of one packed model on the packaged images.

    A `photo_model` names the packaged photographs, and makes the pages for looking inside.
    """
    subject, (images, labels) = checks.open_subject(path), load_sample()
    if (subject.network.class_names or CIFAR10_CLASSES) != CIFAR10_CLASSES or subject.config.classes != len(
        CIFAR10_CLASSES
    ):
        raise LapisError(
            f"{path} has {subject.config.classes} other classes; the demo's images are of CIFAR-10: "
            f"{', '.join(CIFAR10_CLASSES)}"
        )
    photos = checks.Photographs()
    if photo_model is not None:
        photos = checks.classify_photos(checks.open_subject(photo_model))
        report("photos", "; ".join(f"{photo.shows}: {top[0][0]}" for photo, top in photos.answers))
    answers = checks.classify(subject, images[:SHOWN], labels[:SHOWN], CIFAR10_CLASSES)
    shown = ", ".join(f"{answer.name}{'' if answer.right else f' (is {answer.label})'}" for answer in answers[:5])
    report("classify", f"{sum(a.right for a in answers)} of {SHOWN} right by {subject.engine}: {shown}, ...")

    equality = checks.compare_executors(subject, images)
    for agreement in equality.agreements:
        verdict = "" if agreement.passed else " (FAIL: more than the tolerance)"
        report(
            "verify",
            f"{agreement.name} against the integer model on {agreement.images} images: "
            f"{agreement.differing:,} of {agreement.codes:,} codes differ{verdict}",
        )

    accuracy = evaluate_session(subject.session, images, labels)
    report("accuracy", f"{accuracy.top1:.2f} % top-1, {accuracy.top5:.2f} % top-5 of {accuracy.images} test images")

    tally, energy = checks.measure_energy(subject, images[:WATCHED])
    report(
        "energy",
        f"estimated {energy.energy_mj:.4f} mJ per image, {energy.ratio:.1f} times less than dense FP32, "
        f"{int8_ratio(subject.config, tally):.1f} less than dense int8 ({energy.convention.name} convention)",
    )

    speed = checks.measure_speed(subject, images[0])
    against = f"no comparison: {speed.rival}"
    if speed.rival_ms is not None and speed.ratio is not None:
        against = f"{speed.ratio:.1f} times the speed of {speed.rival} ({speed.rival_ms:.2f} ms)"
    report("speed", f"{speed.ours_ms:.2f} ms per image on one thread; {against}")

    details: dict[str, Any] = {"model": path.stem, "picture": "sample:0", "label": CIFAR10_CLASSES[labels[0]]}
    explained = explain_network(subject.network, images[0], **details)
    if photos.subject is not None:
        photo = photos.answers[0][0]
        details = {"model": photos.subject.path.stem, "picture": photo.file, "label": photo.shows}
        explained = explain_network(photos.subject.network, photo.image, **details)
    page = out / "explain.html"
    write_page(page, explained)
    report("explain", str(page))
    pages = Pages(page.name, _write_live(out / "live.html", photo_model or path, report))
    seconds = time.perf_counter() - started
    return DemoResults(
        subject, photos, answers, equality, accuracy, tally, energy, speed, processor(), seconds, pages, training
    )


def _write_live(page: Path, path: Path, report: ReportLine) -> str:
    """Write the page for the reader's own pictures and return its name; "" for a network that no browser runs."""
    try:
        write_live_page(page, path)
    except LapisError as error:
        report("live", f"no page for your own pictures: {error}")
        return ""
    report("live", f"{page} classifies your own pictures, in the browser")
    return page.name


def train_smoke(out: Path, report: ReportLine, quiet: bool, settings: tuple[str, ...] = ()) -> tuple[Path, str]:
    """Train, convert and pack the smoke recipe: its file, and a description."""
    try:
        from lapis.data.packaged import packaged_images
        from lapis.train import recipes
        from lapis.train.distributed import join, leave
        from lapis.train.loop import train
    except ImportError as error:
        raise LapisError(f"training needs torch: {install_command('train')}; or give a packed --model") from error
    folder, images = _unused(out / "run"), len(packaged_images("train"))
    smoke = recipes.load("smoke")
    recipe = replace(smoke, model=smoke.model.deployed()).with_overrides(list(settings))
    processes = join("cpu")
    try:
        summary: dict[str, Any] = train(recipe, None, folder, processes, quiet=quiet)
    finally:
        leave(processes)
    if summary["interrupted"]:
        raise KeyboardInterrupt
    path = out / "smoke.safetensors"
    size = pack.save(path, models.load(folder).network)
    description = (
        f"Recipe {recipe.name} with power-of-two rows, spiking readout and 6-bit weights: {summary['steps']} steps on "
        f"{images} images in {summary['seconds']:.0f} s, then converted and packed into {size / 1e3:.0f} kB. It "
        "shows all steps; its accuracy is low after a minute on a few hundred images."
    )
    report("train", f"{summary['steps']} steps on {images} images, {summary['seconds']:.0f} s; run in {folder}")
    report("pack", f"{path}, {size:,} bytes")
    return path, description


def _packaged(model: str | None) -> Path | None:
    """The file of the given packed model; without one, of the packaged model if this build has it."""
    if model is None:
        return assets.find(MODEL)
    opened = models.load(model)
    if opened.kind != "packed":
        raise LapisError(f"{model} is {models.KINDS[opened.kind]}; the demo takes a packed file: lapis pack {model}")
    return opened.path


def _unused(folder: Path) -> Path:
    """A folder that holds no run yet: `folder`, or its first free sibling."""
    number, free = 1, folder
    while free.exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free
