"""`lapis evaluate`: top-1 and top-5 of a network on a folder of images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from lapis.config import preset as preset_config
from lapis.errors import LapisError


def evaluate(
    model: Annotated[str, typer.Argument(help="A Lapis file, a run's folder, a packaged name, or timm-named weights.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder with CIFAR batches, tar shards or class folders.", envvar="LAPIS_DATA")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Import foreign weights as this Lapis network, calibrated but not trained.")
    ] = None,
    calibrate: Annotated[int, typer.Option(help="Images to calibrate an import on.", min=1)] = 32,
    size: Annotated[
        int | None, typer.Option(help="Image size of a foreign network; the weights' own by default.")
    ] = None,
    normalise: Annotated[
        str | None, typer.Option(help="imagenet, half or cifar; by default what the file says, else imagenet.")
    ] = None,
    crop: Annotated[float, typer.Option(help="Share of the shorter side kept by the centre crop.")] = 0.875,
    limit: Annotated[int | None, typer.Option(help="Only this many images, evenly spread.", min=1)] = None,
    batch: Annotated[int, typer.Option(help="Images a batch.", min=1)] = 64,
    workers: Annotated[int, typer.Option(help="Processes that decode images.", min=0)] = 0,
    threads: Annotated[int | None, typer.Option(help="CPU threads.", min=1)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Top-1 and top-5 accuracy of a network on the test images of a folder, with activity and energy where it spikes.

    Foreign weights are evaluated as the dense network they are. With --preset they are imported as a Lapis network
    whose steps come from a few images; such a network was never trained and its accuracy is low.

    Example: lapis evaluate lapis_tiny_cifar10 --data ~/data --json
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
    typer.echo(json.dumps(record) if as_json else _table(record))


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
