"""`lapis evaluate`: top-1 and top-5 of a network on a folder of images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from lapis.config import preset as preset_config
from lapis.errors import LapisError


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
@click.option("--crop", default=0.875, show_default=True, help="Share of the shorter side that the centre crop keeps.")
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
    crop: float,
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
    # Torch is loaded only by the commands that need it.
    import torch

    from lapis.data.images import spread
    from lapis.data.loader import TestBatches
    from lapis.data.transforms import normalise_by_name
    from lapis.nn.calibrate import calibrate as calibrate_model
    from lapis.nn.pretrained import load_backbone
    from lapis.train.display import Display
    from lapis.train.evaluate import energy_of
    from lapis.train.evaluate import evaluate as score
    from lapis.train.start import find_weights, open_model

    if threads is not None:
        torch.set_num_threads(threads)
    if not 0 < crop <= 1:
        raise LapisError(f"--crop {crop} is not a share; use a number above 0 and up to 1")
    opened = open_model(model)
    network, about = opened.model, opened.about
    state = "dense" if not network.config.quantize else "trained"
    if preset is not None or (size is not None and about is None):
        if about is not None:
            raise LapisError(f"--preset imports foreign weights; {model} is a Lapis network already")
        changes: dict[str, Any] = {
            "classes": network.config.classes,
            "image_size": size or network.config.image_size,
        }
        config = network.config.replace(**changes) if preset is None else preset_config(preset, **changes)
        network = load_backbone(find_weights(model) or model, config)
        state = "dense" if preset is None else "calibrated, not trained"
    images = _open(data, limit)
    _check_classes(images.classes, network.config.classes)
    rule = normalise_by_name(normalise or str((about or {}).get("normalise", "imagenet")))
    view: dict[str, Any] = {
        "size": network.config.image_size,
        "normalise": rule,
        "batch": batch,
        "crop": crop,
        "workers": workers,
    }
    if preset is not None:
        # Calibration sees pixels, not labels; they are taken from the images at hand, and the output says so.
        calibrate_model(network, [one.images for one in TestBatches(spread(images, calibrate), **view)])
    batches = TestBatches(images, classes=network.config.classes, **view)
    with Display("evaluate", len(images)) as display:
        scores = score(
            network, batches, on_batch=lambda s: display.update(s.images, f"top-1 {s.top1:.2f} %  top-5 {s.top5:.2f} %")
        )
        for line in scores.unreadable:
            display.say(line)
    scores.energy = energy_of(network.config, scores.tally)
    record = {"model": model, "state": state, **scores.as_dict(), "config": network.config.to_dict()}
    if preset is not None:
        record["calibration_images"] = min(calibrate, len(images))
    click.echo(json.dumps(record) if as_json else _table(record))


def _open(data: Path | None, limit: int | None) -> Any:
    from lapis.data.images import spread
    from lapis.data.open import open_images
    from lapis.data.sources import resolve_data

    images = open_images(resolve_data(data, None), "test")
    return images if limit is None else spread(images, limit)


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
        lines.append("energy  " + "  ".join(f"{name} {value}" for name, value in record["energy"].items()))
    if record["state"] == "calibrated, not trained":
        lines.append("This network was imported and calibrated, not trained: its accuracy is not a result of Lapis.")
    if record.get("unreadable"):
        lines.append(f"{len(record['unreadable'])} images could not be read and were left out")
    return "\n".join(lines)
