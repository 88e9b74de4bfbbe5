"""`lapis evaluate`: top-1 and top-5 of a network on a folder of images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from lapis.config import LapisConfig
from lapis.config import preset as preset_config
from lapis.data.images import ArrayImages, Images, Labels, Pixels, UnreadableImageError, spread
from lapis.data.open import open_images
from lapis.data.sources import resolve_data
from lapis.errors import LapisError
from lapis.pack.reader import is_packed
from lapis.preprocess import Preprocess
from lapis.runtime.session import Session
from lapis.train.display import Display
from lapis.train.scores import WATCHED_IMAGES, Scores, energy_of
from lapis.train.weights import find_weights

# The share of the shorter side that foreign classifiers are commonly tested on, where images are not tiny.
COMMON_CROP = 0.875
CALIBRATED = "calibrated, not trained"


@click.command()
@click.argument("model")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    envvar="LAPIS_DATA",
    help="Folder with CIFAR batches, tar shards or class folders [LAPIS_DATA].",
)
@click.option("--preset", help="Import foreign weights as this Lapis network, calibrated but not trained.")
@click.option(
    "--calibrate", default=32, show_default=True, type=click.IntRange(1), help="Images to calibrate an import on."
)
@click.option("--size", type=click.IntRange(1), help="Image size of a foreign network; the weights' own by default.")
@click.option("--normalise", help="imagenet, half or cifar; by default what the file says, else imagenet.")
@click.option("--crop", type=float, help="Share of the shorter side that the centre crop keeps.")
@click.option("--limit", type=click.IntRange(1), help="Only this many images, evenly spread.")
@click.option("--batch", default=64, show_default=True, type=click.IntRange(1), help="Images a batch.")
@click.option("--workers", default=0, show_default=True, type=click.IntRange(0), help="Processes that decode images.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    model: str,
    data: Path | None,
    preset: str | None,
    calibrate: int,
    size: int | None,
    normalise: str | None,
    crop: float | None,
    limit: int | None,
    batch: int,
    workers: int,
    threads: int | None,
    as_json: bool,
) -> None:
    """Top-1 and top-5 accuracy of a network on the test images of a folder, with activity and energy where it spikes.

    MODEL is a Lapis file, a run's folder, a packaged name, or timm-named weights.
    Foreign weights are evaluated as the dense network they are. With --preset they are imported as a Lapis network
    whose steps come from a few images; such a network was never trained and its accuracy is low.

    \b
    Example:
      lapis evaluate lapis_tiny_cifar10 --data ~/data --json
    """
    images = open_images(resolve_data(data, None), "test")
    images = images if limit is None else spread(images, limit)
    path = find_weights(model)
    if path is not None and path.is_file() and is_packed(path):
        if preset is not None or size is not None:
            raise LapisError(f"--preset and --size import foreign weights; {model} is a packed network already")
        record = _packed(path, images, batch, threads or 1)
    else:
        record = _torch(model, images, preset, calibrate, size, normalise, crop, batch, workers, threads)
    record = {"model": model, **record}
    click.echo(json.dumps(record) if as_json else _table(record))


def _packed(path: Path, images: Images, batch: int, threads: int) -> dict[str, Any]:
    """Scores of a packed network in integer arithmetic; torch is not needed."""
    session = Session(path, threads)
    _check_classes(images.classes, session.config.classes)
    scores = Scores()
    with Display("evaluate", len(images)) as display:
        for start in range(0, len(images), batch):
            part = range(start, min(len(images), start + batch))
            pixels, labels = _readable(images, part, scores)
            if pixels and scores.tally.images < WATCHED_IMAGES:
                logits, trace = session.watch(pixels)
                scores.tally.add(trace)
                scores.count(logits, labels)
            elif pixels:
                scores.count(session.run(pixels), labels)
            display.update(part.stop, _note(scores))
        _say_unreadable(scores, display)
    scores.energy = energy_of(session.config, scores.tally)
    return {"state": "packed", "executor": session.executor, **scores.as_dict(), "config": session.config.to_dict()}


def _readable(images: Images, part: range, scores: Scores) -> tuple[list[Pixels], Labels]:
    """The images of a part that can be read, and their labels; the others are noted."""
    pixels: list[Pixels] = []
    labels: list[int] = []
    for index in part:
        try:
            pixels.append(images.read(index))
            labels.append(int(images.labels[index]))
        except UnreadableImageError as error:
            scores.unreadable.append(str(error))
    return pixels, np.asarray(labels, np.int64)


def _say_unreadable(scores: Scores, display: Display) -> None:
    for line in scores.unreadable:
        display.say(line)
    if not scores.images:
        raise LapisError("no image could be read")


def _torch(
    model: str,
    images: Images,
    preset: str | None,
    calibrate: int,
    size: int | None,
    normalise: str | None,
    crop: float | None,
    batch: int,
    workers: int,
    threads: int | None,
) -> dict[str, Any]:
    """Scores of a network that torch runs: a Lapis checkpoint or a foreign backbone."""
    import torch

    from lapis.data.loader import TestBatches
    from lapis.data.transforms import normalise_by_name
    from lapis.nn.calibrate import calibrate as calibrate_model
    from lapis.nn.pretrained import load_backbone
    from lapis.train.evaluate import evaluate
    from lapis.train.start import open_model

    if threads is not None:
        torch.set_num_threads(threads)
    opened = open_model(model)
    network, state = opened.model, "trained" if opened.model.config.quantize else "dense"
    if preset is not None or size is not None:
        if opened.about is not None:
            raise LapisError(f"--preset and --size import foreign weights; {model} is a Lapis network already")
        config = _import_config(network.config, preset, size)
        network, state = load_backbone(opened.path or model, config), "dense" if preset is None else CALIBRATED
    _check_classes(images.classes, network.config.classes)
    said = opened.preprocess
    mean, std = (said.mean, said.std) if normalise is None else normalise_by_name(normalise)
    if crop is None:
        small = isinstance(images, ArrayImages)
        crop = said.crop if opened.about is not None or small else COMMON_CROP
    preprocess = Preprocess(network.config.image_size, mean, std, said.interpolation, crop)
    if preset is not None:
        # Calibration sees pixels, not labels; they are taken from the images at hand, and the output says so.
        few = TestBatches(spread(images, calibrate), preprocess, batch, workers=workers)
        calibrate_model(network, [one.images for one in few])
    batches = TestBatches(images, preprocess, batch, network.config.classes, workers=workers)
    with Display("evaluate", len(images)) as display:
        scores = evaluate(network, batches, on_batch=lambda so_far: display.update(so_far.images, _note(so_far)))
        _say_unreadable(scores, display)
    scores.energy = energy_of(network.config, scores.tally)
    record = {"state": state, **scores.as_dict(), "config": network.config.to_dict()}
    return record if preset is None else record | {"calibration_images": min(calibrate, len(images))}


def _import_config(dense: LapisConfig, preset: str | None, size: int | None) -> LapisConfig:
    changes: dict[str, Any] = {"classes": dense.classes, "image_size": size or dense.image_size}
    return dense.replace(**changes) if preset is None else preset_config(preset, **changes)


def _note(scores: Scores) -> str:
    return f"top-1 {scores.top1:.2f} %  top-5 {scores.top5:.2f} %"


def _check_classes(names: tuple[str, ...], classes: int) -> None:
    # Folders named by number may cover only some of a network's classes; names must match in number.
    if len(names) > classes or (len(names) < classes and not all(name.isdecimal() for name in names)):
        raise LapisError(f"the images have {len(names)} classes, the network {classes}; use a network for this dataset")


def _table(record: dict[str, Any]) -> str:
    lines = [
        f"{record['model']} ({record['state']})",
        f"top-1   {record['top1']:.2f} %",
        f"top-5   {record['top5']:.2f} %",
        f"images  {record['images']}",
    ]
    if "activity" in record:
        lines.append("activity  " + "  ".join(f"{point} {share:.3f}" for point, share in record["activity"].items()))
    if record.get("energy"):
        energy = record["energy"]
        lines.append(
            f"energy  {energy['energy_mj']:.4f} mJ an image, dense {energy['dense_energy_mj']:.4f} mJ "
            f"(convention {energy['convention']})"
        )
    if record["state"] == CALIBRATED:
        lines.append("This network was imported and calibrated, not trained: its accuracy is not a result of Lapis.")
    if record.get("unreadable"):
        lines.append(f"{len(record['unreadable'])} images could not be read and were left out")
    return "\n".join(lines)
