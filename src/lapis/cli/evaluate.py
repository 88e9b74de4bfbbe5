"""`lapis evaluate`: top-1 and top-5 of a network on a folder of images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from lapis.cli.needs import needed_torch
from lapis.config import LapisConfig
from lapis.config import preset as preset_config
from lapis.data.images import ArrayImages, Images, Pixels, spread
from lapis.data.open import open_images
from lapis.data.sources import resolve_data
from lapis.errors import LapisError
from lapis.pack import is_packed
from lapis.preprocess import Preprocess
from lapis.runtime import Session
from lapis.runtime import evaluate as evaluate_session
from lapis.trace import Tally
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
@click.option("--shard", metavar="I/N", help="Only every N-th image from I on, of a packed network; see lapis merge.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
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
    shard: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Top-1 and top-5 accuracy of a network on the test images of a folder, with activity and energy where it spikes.

    MODEL is a Lapis file, a run's folder, a packaged name, or timm-named weights.
    Foreign weights are evaluated as the dense network they are. With --preset they are imported as a Lapis network
    whose steps come from a few images; such a network was never trained and its accuracy is low.

    \b
    Example:
      lapis evaluate lapis_tiny_cifar10 --data ~/data --json
      lapis evaluate lapis_tiny_cifar10 --data ~/data --shard 0/4 --json > part0.json
    """
    images = open_images(resolve_data(data, None), "test")
    images = images if limit is None else spread(images, limit)
    path = find_weights(model)
    if path is not None and path.is_file() and is_packed(path):
        if preset is not None or size is not None:
            raise LapisError(f"--preset and --size import foreign weights; {model} is a packed network already")
        record = _packed(path, images, batch, threads or 1, parse_shard(shard), quiet)
    elif shard is not None:
        raise LapisError(f"--shard is for packed networks; evaluate {model} under torchrun instead, or pack it first")
    else:
        record = _torch(model, images, preset, calibrate, size, normalise, crop, batch, workers, threads, quiet)
    record = {"model": model, **record}
    click.echo(json.dumps(record) if as_json else _table(record))


class _ByIndex:
    """Images as a collection for a session, which resizes them by the packed file's own rule."""

    def __init__(self, images: Images) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int, /) -> Pixels:
        return self._images.read(index)


def _packed(
    path: Path, images: Images, batch: int, threads: int, shard: tuple[int, int], quiet: bool
) -> dict[str, Any]:
    """Scores of a packed network in integers, by the native engine where there is one; torch is not needed."""
    session, tally = Session(path, threads), Tally()
    _check_classes(images.classes, session.config.classes)
    with Display("evaluate", len(images), quiet=quiet) as display:
        result = evaluate_session(
            session,
            _ByIndex(images),
            images.labels,
            batch,
            shard,
            lambda done, count: display.update(done * len(images) // count, ""),
            (tally, WATCHED_IMAGES),
        )
        for line in result.unreadable:
            display.say(line)
    return {
        "state": "packed",
        "executor": session.executor,
        **result.to_dict(),
        "activity": {point: round(share, 6) for point, share in tally.activities().items()},
        "energy": energy_of(session.config, tally),
        "config": session.config.to_dict(),
    }


def parse_shard(text: str | None) -> tuple[int, int]:
    """I/N as a pair of numbers; nothing is the whole set."""
    if text is None:
        return 0, 1
    index, sign, of = text.partition("/")
    if not (sign and index.isdecimal() and of.isdecimal()):
        raise LapisError(f"--shard {text} is not I/N; for instance 0/4 for the first of four")
    return int(index), int(of)


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
    quiet: bool,
) -> dict[str, Any]:
    """Scores of a network that torch runs: a Lapis checkpoint or a foreign backbone."""
    torch = needed_torch()

    from lapis.convert.deployed import as_deployed
    from lapis.data.loader import TestBatches
    from lapis.data.transforms import normalise_by_name
    from lapis.nn.calibrate import calibrate as calibrate_model
    from lapis.nn.pretrained import load_backbone
    from lapis.train.evaluate import evaluate
    from lapis.train.start import open_model

    if threads is not None:
        torch.set_num_threads(threads)
    opened = open_model(model)
    network = opened.model
    # A file that says nothing of its training is not called trained.
    state = str((opened.about or {}).get("state", "dense" if not network.config.quantize else "of unknown training"))
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
    with Display("evaluate", len(images), quiet=quiet) as display:
        runner = as_deployed(network, preprocess)
        scores = evaluate(runner, batches, on_batch=lambda so_far: display.update(so_far.images, _note(so_far)))
        for line in scores.unreadable:
            display.say(line)
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
