"""`lapis distill`: turn a dense vision transformer into a packed Lapis network, from images without labels."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from lapis import models, native, pack
from lapis._util.files import check_folder, check_target
from lapis._util.progress import Display
from lapis._util.terminal import echo
from lapis.cli.completion import MODEL
from lapis.cli.options import (
    device_option,
    force_option,
    json_option,
    quiet_option,
    show,
    step_printer,
    torch_threads_option,
    with_torch_threads,
)
from lapis.convert.verification import Executor, spiking_executor, verify
from lapis.data.images import FileImages, Images, match_classes
from lapis.data.open import open_images, resized_batches
from lapis.deploy.simulate import Events
from lapis.errors import EXIT_CHECK_FAILED, EXIT_INTERRUPTED, EXIT_OK, LapisError
from lapis.models import Model
from lapis.report.distill import DistillResults, write_distill_page
from lapis.report.finetune import answer_images
from lapis.report.page.page import engine_name
from lapis.runtime.accuracy import evaluate_session
from lapis.runtime.engine import Engine
from lapis.runtime.session import Session

if TYPE_CHECKING:
    from lapis.train.distillation import Distilled

# Images held aside on which the executors of the packed file are compared, code by code.
VERIFIED = 2
# The first row of the report: the network before any training.
CALIBRATED = "calibrated"


@click.command()
@click.argument("source", type=MODEL)
@click.option(
    "--images", multiple=True, required=True, type=click.Path(path_type=Path), help="Folder of images; repeatable."
)
@click.option("-o", "file", required=True, type=click.Path(path_type=Path), help="Packed file to write.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="Time to train; the usual steps by default.")
@click.option("--goal", type=click.FloatRange(0.2, 1), help="Share of values that may spike; adds a stage.")
@click.option("--labelled", type=click.Path(path_type=Path), help="Folder with a folder per class, to test both on.")
@click.option("--names", type=click.Path(path_type=Path), help="Text file with the name of one class per line.")
@click.option("--folder", type=click.Path(path_type=Path), help="Folder of the runs; FILE_distill by default.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting of every stage.")
@device_option
@torch_threads_option
@force_option
@quiet_option
@json_option
def command(
    source: str,
    images: tuple[Path, ...],
    file: Path,
    minutes: float | None,
    goal: float | None,
    labelled: Path | None,
    names: Path | None,
    folder: Path | None,
    settings: tuple[str, ...],
    device: str,
    threads: int | None,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Distil the dense network SOURCE into a packed one, without labels, verify it and write a report.

    SOURCE is a timm name of a ViT, DeiT or BEiT, a file of such weights, or a dense checkpoint. Every block learns
    alone on SOURCE's tokens, then the whole network follows its answers. The plan is printed first. Ctrl-C saves; the
    same command continues.

    \b
    Example:
      lapis distill deit_tiny_patch16_224 --images photos --minutes 60 -o tiny.safetensors
    """
    with_torch_threads(threads)

    from lapis.train.distillation import distill, runs_folder
    from lapis.train.distributed import join

    inputs, report_file = [models.find(source), *images, labelled, names], file.with_suffix(".html")
    if report_file == file:
        raise LapisError(f"-o {file} is the name of the report; give the packed file a name as {file.stem}.safetensors")
    check_target(file, "-o", "packed network", inputs, force)
    check_target(report_file, "-o", "page", inputs, force)
    check_folder(runs_folder(file, folder), "--folder", [*images, labelled])
    class_names, opened = _read_names(names), models.load(source)
    tested = None if labelled is None else _labelled_images(labelled, opened, class_names)

    with join(device) as processes:
        result = distill(
            source, images, file, folder=folder, minutes=minutes, goal=goal, class_names=class_names,
            settings=settings, processes=processes, quiet=quiet, report=step_printer(quiet or as_json),
        )  # fmt: skip
    if result is None:
        echo("stopped; the same command continues", error=True)
        if as_json:
            echo(json.dumps({"file": str(file), "interrupted": True}))
        return EXIT_INTERRUPTED
    shown = _finish(result, opened, tested, threads or 1, quiet)
    show(shown, _lines(shown), as_json)
    return EXIT_OK if shown["verified"]["passed"] else EXIT_CHECK_FAILED


def _read_names(file: Path | None) -> list[str]:
    if file is None:
        return []
    try:
        return [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise LapisError(f"--names {file} cannot be read as lines of text: {error}") from error


def _labelled_images(folder: Path, opened: Model, class_names: list[str]) -> Images:
    """Labelled images with the labels of the networks, which are checked before anything is trained."""
    images = open_images(folder, "test")
    return match_classes(images, class_names or opened.class_names, opened.config.classes)[0]


def _finish(result: Distilled, opened: Model, tested: Images | None, threads: int, quiet: bool) -> dict[str, Any]:
    """Test and verify the packed file and write the report; what it says, with its path."""
    session, held = Session(result.file, threads), result.held_aside
    with Display("test", len(held), quiet=quiet) as display:
        answers = answer_images(session, held, 0, lambda done, count: display.update(done))
    before = {"stage": CALIBRATED, "steps": 0, "minutes": 0.0, **result.before}
    stages = [
        {
            "stage": stage,
            "steps": summary["steps"],
            "minutes": summary["seconds"] / 60,
            "folder": str(result.plan.stage_folder(stage)),
            **result.nearness[stage],
        }
        for stage, summary in result.summaries.items()
    ]
    with Display("verify", VERIFIED, quiet=quiet) as display:
        verified = _verify(result.file, held, display.update)
    about = {
        "source": result.plan.source,
        "folder": str(result.plan.folder),
        "train_images": len(result.images.train),
        "held_aside_images": len(held),
        "unreadable": list(result.images.unreadable),
        "image_size": session.config.image_size,
        "classes": session.config.classes,
        "window": session.config.window,
        "weight_bits": session.config.weight_bits,
        "engine": engine_name(session),
        "verified": verified,
        "labelled": None if tested is None else _accuracies(session, opened, tested, quiet),
    }
    page = result.file.with_suffix(".html")
    results = DistillResults(
        result.file, session.preprocess, held, answers, result.dense_logits, [before, *stages], about
    )
    return write_distill_page(page, results) | {"report": str(page)}


def _verify(file: Path, images: FileImages, progress: Callable[[int], None]) -> dict[str, Any]:
    """The packed network as spikes and in the engine, against the integer model."""
    network = pack.load(file)
    executors = {"spikes": spiking_executor(network, Events())}
    if native.available():
        executors["native"] = Executor(Engine(network, 1).watch, "equal")
    few = images.select(np.arange(min(VERIFIED, len(images))))
    batches = ((pixels, None) for pixels, _ in resized_batches(few, network.preprocess, 1))
    report = verify(network, executors, batches, progress)
    codes, differing = (sum(getattr(each, name) for each in report.agreements) for name in ("codes", "differing"))
    return {
        "passed": report.passed,
        "images": len(few),
        "executors": list(executors),
        "codes": codes,
        "codes_differing": differing,
        "text": f"{differing:,} of {codes:,} codes differ between {', '.join(executors)} and the integer model",
    }


def _accuracies(session: Session, opened: Model, images: Images, quiet: bool) -> dict[str, Any]:
    """Top-1 accuracy of the packed file and of its dense source, in percent."""
    from lapis.convert.torch_executor import DeployedEvaluator
    from lapis.data.loader import TestBatches
    from lapis.train.distillation import dense_preprocess
    from lapis.train.evaluate import evaluate

    preprocess = dense_preprocess(opened)
    with Display("labelled", 2 * len(images), quiet=quiet) as display:
        ours = evaluate_session(session, images, images.labels, progress=lambda done, count: display.update(done))
        dense = evaluate(
            DeployedEvaluator(opened.torch(), preprocess),
            TestBatches(images, preprocess, 50),
            0,
            lambda scores: display.update(len(images) + scores.images),
        )
    return {"images": ours.images, "deployed": ours.top1, "dense": dense.top1}


def _lines(shown: dict[str, Any]) -> list[str]:
    before, after, labelled = shown["stages"][0], shown["stages"][-1], shown["labelled"]
    lines = [
        f"{'agrees':<9} on {shown['agreement']['top1']:.1f} % of {shown['agreement']['images']} images held aside, "
        f"KL {after['kl']:.3f} (calibrated only: {before['agreement']:.1f} %, KL {before['kl']:.2f})"
    ]
    if labelled is not None:
        lines.append(
            f"{'labelled':<9} {labelled['deployed']:.2f} % of {labelled['images']} images right, "
            f"the dense network {labelled['dense']:.2f} %"
        )
    return [
        *lines,
        f"{'verified':<9} {shown['verified']['text']}",
        f"{'packed':<9} {shown['file']}, {shown['bytes']:,} bytes",
        f"{'report':<9} {shown['report']}",
    ]
