"""Trained networks: time, accuracy on the same images, file size and peak memory, beside other engines.

The other engines run the dense network that ours comes from, quantized by their own tools with images for calibration.
Every engine is a process of its own, on one thread, and all take turns.

python -m benchmarks.trained lapis_tiny.imagenet --dense DEIT --data IMAGENET --calibrate PHOTOS
python -m benchmarks.trained lapis_tiny.cifar10 lapis_tiny.cifar10_sparse --dense RUN --data CIFAR --calibrate CIFAR
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np

from benchmarks.common import (
    Several,
    deliver,
    machine,
    main,
    output_options,
    quartiles,
    ratio_quartiles,
    report,
    require_kernels,
    rounds_option,
    take_turns,
)
from benchmarks.contenders import (
    CALIBRATION_FILE,
    IMAGES_FILE,
    LABELS_FILE,
    OTHER_ENGINES,
    RULE_FILE,
    TORCH_FILE,
    Workload,
    contender_of,
)
from benchmarks.workers import BenchLog, prepare, workers
from lapis import models
from lapis._util.files import new_folder
from lapis._util.metrics import interval95
from lapis.config import LapisConfig
from lapis.data.cifar import find_layout
from lapis.data.class_folders import images_below
from lapis.data.images import Images, match_classes, spread
from lapis.data.open import open_images
from lapis.errors import LapisError
from lapis.models import Model
from lapis.preprocess import Pixels, Preprocess, read_file

# As many as NNCF takes by default.
CALIBRATION_IMAGES = 300
OPTIONS_FILE, SCORES_FILE = "options.json", "scores.json"


@dataclass(frozen=True)
class TrainedRow:
    """One network in one engine, on one thread.

    Milliseconds per image are medians over the rounds, of wall time with its quartiles and of processor time;
    `times_ours` is how many times longer than the first network, the median of the rounds' ratios. `top1` is in percent
    of `images` images, with its 95 % interval, at batch 1. `file_mb` is what is deployed. `peak_mb` is the memory of
    the whole process that ran the batch.
    """

    engine: str
    batch: int
    ms_per_image: float
    ms_low: float
    ms_high: float
    cpu_ms: float
    times_ours: float
    top1: float
    top1_low: float
    top1_high: float
    images: int
    file_mb: float
    peak_mb: float


def write_data(packed: Sequence[Model], dense: Model, data: Path, calibrate: Path, limit: int, folder: Path) -> None:
    """The weights and images of all engines, and copies of the packed files."""
    import torch

    from benchmarks.dense import from_vit

    rule, sizes = packed[0].preprocess, {model.config.image_size for model in (*packed, dense)}
    for model in packed[1:]:
        if model.preprocess != rule:
            raise LapisError(f"{model.source} prepares images in another way than {packed[0].source}; time it apart")
    if len(sizes) > 1:
        raise LapisError(f"the networks take images of {sorted(sizes)} pixels; the dense one must be of the same size")
    if calibrate.resolve() == data.resolve() and find_layout(data) is None:
        raise LapisError(f"{data} holds the test images; --calibrate needs others")
    torch.save(from_vit(dense.torch().eval(), dense.config).state_dict(), folder / TORCH_FILE)
    images, _ = match_classes(open_images(data, "test"), packed[0].class_names, packed[0].config.classes)
    images = spread(images, min(limit, len(images)))
    np.save(folder / IMAGES_FILE, np.stack([rule.resize(images[at]) for at in range(len(images))]))
    np.save(folder / LABELS_FILE, images.labels)
    np.save(folder / CALIBRATION_FILE, calibration_pixels(calibrate, rule))
    (folder / RULE_FILE).write_text(json.dumps(rule.to_dict()))
    for model in packed:
        assert model.path is not None
        shutil.copyfile(model.path, folder / file_of(model))
    report(f"{len(images)} images, {rule}")


def calibration_pixels(folder: Path, rule: Preprocess) -> Pixels:
    """Some training images of CIFAR, or of all images in a folder and the folders below it."""
    if find_layout(folder) is not None:
        train: Images = open_images(folder, "train")
        chosen: Any = spread(train, min(CALIBRATION_IMAGES, len(train)))
        return np.stack([rule.resize(chosen[at]) for at in range(len(chosen))])
    paths = images_below(folder)
    if not paths:
        raise LapisError(f"--calibrate {folder} holds no images")
    places = np.linspace(0, len(paths) - 1, min(CALIBRATION_IMAGES, len(paths))).astype(int)
    return np.stack([rule.resize(read_file(paths[at])) for at in places])


def file_of(model: Model) -> str:
    """The packed file's name in the folder, which is its label too."""
    return f"{Path(model.source).name.removesuffix('.safetensors')}.safetensors"


def scored(names: Sequence[str], config: LapisConfig, folder: Path, log: BenchLog) -> dict[str, int]:
    """How many images each engine classifies correctly, image by image; what is known already is not run again."""
    file = folder / SCORES_FILE
    scores: dict[str, int] = json.loads(file.read_text()) if file.is_file() else {}
    for name in names:
        if name not in scores:
            with workers([name], Workload(config, 1, 1), folder, log) as running:
                for worker in running.values():
                    try:
                        scores[name] = worker.score()
                    except LapisError as error:
                        log.skip(worker.label, str(error))
            file.write_text(json.dumps(scores))
            log.report(f"{contender_of(name).label}: {scores.get(name)} correct")
    return {name: scores[name] for name in names if name in scores}


def compare(
    ours: Sequence[str], rivals: Sequence[str], config: LapisConfig, batches: Sequence[int], rounds: int, folder: Path,
    log: BenchLog,
) -> list[TrainedRow]:  # fmt: skip
    """Make what is missing, count correct answers, then time all in turns."""
    scores = scored(prepare([*ours, *rivals], config, folder, log), config, folder, log)
    with ExitStack() as stack:
        running = {
            (batch, name): worker
            for batch in batches
            for name, worker in stack.enter_context(
                workers(list(scores), Workload(config, 1, batch), folder, log)
            ).items()
        }
        turns = take_turns(
            {key: worker.time for key, worker in running.items()},
            rounds,
            lambda key, error: log.skip(running[key].label, str(error)),
        )
        peaks = {key: running[key].finish() for key in turns}
    walls = {key: [1e3 * turn.wall_s / key[0] for turn in taken] for key, taken in turns.items()}
    count, rows = len(np.load(folder / LABELS_FILE)), []
    for batch, name in walls:
        first = (batch, ours[0])
        if first not in walls:
            raise LapisError(f"{contender_of(ours[0]).label} did not run: {log.skipped[contender_of(ours[0]).label]}")
        low, middle, high = (round(value, 3) for value in quartiles(walls[batch, name]))
        share = 100 * scores[name] / count
        worst, best = interval95(scores[name], count)
        size = sum((folder / file).stat().st_size for file in contender_of(name).files)
        times = round(ratio_quartiles(walls[batch, name], walls[first])[1], 3)
        worked = round(1e3 * median(turn.cpu_s for turn in turns[batch, name]) / batch, 3)
        rows.append(
            TrainedRow(
                running[batch, name].label, batch, middle, low, high, worked, times, round(share, 2), round(worst, 2),
                round(best, 2), count, round(size / 1e6, 2), round(peaks[batch, name] / 1e6, 1),
            )
        )  # fmt: skip
    return rows


PATH = click.Path(exists=True, path_type=Path)


@click.command()
@click.argument("packed", nargs=-1, required=True)
@click.option("--dense", required=True, help="The dense network: weights in timm's names, or a run of training.")
@click.option("--data", required=True, type=PATH, help="Test images: CIFAR, or class folders.")
@click.option("--calibrate", required=True, type=PATH, help="Other images, for quantization: CIFAR, or any folder.")
@click.option("--limit", default=2000, show_default=True, type=click.IntRange(1), help="At most so many test images.")
@click.option(
    "--engine", "names", type=Several(click.Choice(list(OTHER_ENGINES))), default=",".join(OTHER_ENGINES),
    show_default=True, help="Rivals; those that are not installed are skipped and named.",
)  # fmt: skip
@click.option("--batch", "batches", type=Several(click.IntRange(1)), default="1,8", show_default=True, help="Images.")
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path),
    help="Keep what is made here: with the same options, a later run only takes the times.",
)  # fmt: skip
@rounds_option(60)
@output_options
def command(
    packed: tuple[str, ...], dense: str, data: Path, calibrate: Path, limit: int, names: tuple[str, ...],
    batches: tuple[int, ...], folder: Path | None, rounds: int, as_json: bool, out: Path | None,
) -> None:  # fmt: skip
    """Time trained networks beside the dense network in other engines, with accuracy, size and memory.

    PACKED are packed files or packaged names; the first is what the others are compared with. Decoding, resizing and
    normalising are not timed.

    \b
    Example:
      python -m benchmarks.trained lapis_tiny.imagenet --dense DEIT --data IMAGENET --calibrate PHOTOS
    """
    require_kernels()
    opened, source, log = [models.load(name) for name in packed], models.load(dense), BenchLog(report)
    for model in opened:
        if model.packed is None:
            raise LapisError(f"{model.source} is not a packed network; pack it first: lapis pack {model.source}")
    if len({file_of(model) for model in opened}) < len(opened):
        raise LapisError("two of the packed files have the same name; rename one")
    with new_folder(folder) if folder else nullcontext(), tempfile.TemporaryDirectory(prefix="lapis-bench-") as made:
        place = folder or Path(made)
        given = {"packed": [*packed], "dense": dense, "data": str(data), "calibrate": str(calibrate), "limit": limit}
        kept = place / OPTIONS_FILE
        if not kept.is_file():
            write_data(opened, source, data, calibrate, limit, place)
            kept.write_text(json.dumps(given))
        elif json.loads(kept.read_text()) != given:
            raise LapisError(f"{folder} was made with other options; use another folder, or remove it")
        config = replace(source.config, classes=opened[0].config.classes)
        rows = compare([file_of(model) for model in opened], names, config, batches, rounds, place, log)
    deliver("trained", machine(), rows, as_json, out)


if __name__ == "__main__":
    sys.exit(main(command))
