"""`lapis evaluate`: top-1 and top-5 of a network on a folder of images."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lapis import models
from lapis._util.metrics import WATCHED_IMAGES, Accuracy, interval95, paired_test
from lapis._util.progress import Display
from lapis.cli import options
from lapis.cli.completion import MODEL
from lapis.config import LapisConfig
from lapis.data.images import ArrayImages, Images, match_classes, spread
from lapis.data.open import open_images, resolve_data
from lapis.deploy.network import Network
from lapis.energy import energy_of
from lapis.energy.activity import tally_to_dict
from lapis.energy.estimate import describe
from lapis.errors import LapisError
from lapis.models import Model
from lapis.preprocess import Preprocess, normalisation
from lapis.runtime import evaluate_session

if TYPE_CHECKING:
    from lapis.nn import LapisViT

# The share of the shorter side that is commonly kept in tests of foreign classifiers, if images are not tiny.
COMMON_CROP = 0.875
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Settings:
    """How a network is evaluated: the options of these names."""

    size: int | None
    normalise: str | None
    crop: float | None
    batch: int
    workers: int
    threads: int | None
    device: str | None
    low_memory: bool
    hashed: bool
    quiet: bool


@click.command()
@click.argument("model", type=MODEL)
@options.data_option("Folder with CIFAR batches or class folders")
@click.option("--limit", type=click.IntRange(1), help="Only this many images, evenly spread.")
@click.option("--compare", type=MODEL, metavar="OTHER", help="Test another network on the same images, and compare.")
@click.option("--size", type=click.IntRange(1), help="Image size for foreign weights; their own by default.")
@click.option("--normalise", help="imagenet, half or cifar; by default as in the file, else imagenet.")
@click.option("--crop", type=float, help="Share of the shorter side that the centre crop keeps.")
@click.option("--batch", default=64, show_default=True, type=click.IntRange(1), help="Images per batch.")
@click.option("--workers", default=0, show_default=True, type=click.IntRange(0), help="Processes that decode.")
@options.torch_threads_option
@click.option("--device", help="auto, cpu or cuda: packed networks run in torch too, with equal bits.")
@options.low_memory_option
@click.option("--hash", "hashed", is_flag=True, help="Give the SHA-256 of all integer logits of a packed network.")
@options.quiet_option
@options.json_option
def command(
    model: str, data: Path | None, limit: int | None, compare: str | None, as_json: bool, **chosen: Any
) -> None:
    """Measure top-1 and top-5 accuracy on test images, with activity and energy of spiking networks.

    MODEL is a Lapis file, a run's folder, a packaged name, or timm-named weights, which are evaluated as the dense
    network they are. A packed network runs in the C engine; all others run in torch. --compare gives McNemar's exact
    test of two networks, image by image; --size and --hash are then about MODEL only.

    \b
    Example:
      lapis evaluate lapis_tiny.cifar10 --data ~/data --limit 100
    """
    whole = open_images(resolve_data(data, None), "test")
    images = whole if limit is None else spread(whole, limit)
    settings = Settings(**chosen)
    record, hits = _evaluate(model, images, settings)
    if compare is not None:
        other, other_hits = _evaluate(compare, images, replace(settings, size=None, hashed=False))
        if len(hits) != len(other_hits):  # only files that change meanwhile
            raise LapisError(f"{model} read {len(hits)} images and {compare} {len(other_hits)}; start again")
        record["compare"] = {"other": other, **paired_test(hits, other_hits)}
    options.show(record, table(record), as_json)


def _evaluate(model: str, images: Images, settings: Settings) -> tuple[dict[str, Any], list[bool]]:
    """The record of a network, and which images it classified correctly."""
    opened = models.load(model)
    if settings.size and opened.kind != "foreign":
        raise LapisError(f"--size is for foreign weights; {model} is {models.KINDS[opened.kind]}")
    try:
        images, matched = match_classes(images, opened.class_names, opened.config.classes)
    except LapisError as error:
        raise LapisError(f"{model}: {error}") from error
    with Display("evaluate", len(images), quiet=settings.quiet) as display:
        if opened.kind == "packed" and settings.device is None:
            record, config, scores = _packed(opened, images, settings, display)
        elif settings.hashed or settings.low_memory:
            option = "--hash" if settings.hashed else "--low-memory"
            raise LapisError(f"{option} is for packed networks without --device; {model} runs in torch here")
        else:
            record, config, scores = _torch(opened, images, settings, display)
        for line in scores.unreadable:
            display.print_line(line)
    scores.energy = energy_of(config, scores.tally)
    record = {"model": model, **record, **scores.as_dict(), "config": config.to_dict(), "classes_matched": matched}
    return record | {"interval95": interval95(scores.top1_correct, scores.images)}, scores.hits


Found = tuple[dict[str, Any], LapisConfig, Accuracy]


def _packed(opened: Model, images: Images, settings: Settings, display: Display) -> Found:
    """Scores of a packed network in integers, with the native engine if there is one; torch is not needed."""
    session = opened.session(settings.threads or 1, low_memory=settings.low_memory)
    digest = hashlib.sha256()
    scores = evaluate_session(
        session,
        images,
        images.labels,
        settings.batch,
        lambda done, count: display.update(done),
        WATCHED_IMAGES,
        integers=lambda logits: digest.update(logits.astype("<i8").tobytes()),
    )
    record = {"state": "packed", "executor": session.executor, "tally": tally_to_dict(scores.tally)}
    return record | ({"logits_sha256": digest.hexdigest()} if settings.hashed else {}), session.config, scores


def _torch(opened: Model, images: Images, settings: Settings, display: Display) -> Found:
    """Scores of a network that torch runs: a Lapis checkpoint or a foreign backbone."""
    options.with_torch_threads(settings.threads)
    from lapis.convert.torch_executor import DeployedEvaluator
    from lapis.data.loader import TestBatches
    from lapis.train.distributed import choose_device
    from lapis.train.evaluate import evaluate

    def show_scores(so_far: Accuracy) -> None:
        display.update(so_far.images, f"top-1 {so_far.top1:.2f} %  top-5 {so_far.top5:.2f} %")

    device = choose_device(settings.device or "auto")
    network, state = _network(opened, settings.size)
    preprocess = _preprocess(opened, network.config.image_size, settings, small=isinstance(images, ArrayImages))
    batches = TestBatches(images, preprocess, settings.batch, workers=settings.workers, device=device)
    scores = evaluate(DeployedEvaluator(network, preprocess).to(device), batches, on_batch=show_scores)
    return {"state": state, "executor": f"torch, {device}"}, network.config, scores


def _network(opened: Model, size: int | None) -> tuple[LapisViT | Network, str]:
    """The network to evaluate, and its state of training, which is unknown if the file does not record it."""
    if size:
        from lapis.nn import load_backbone

        return load_backbone(opened.path or opened.source, image_size=size), "dense"
    if opened.kind == "packed":
        return opened.network, "packed"
    network = opened.torch()
    return network, str(opened.metadata.get("state", "of unknown training" if network.config.quantize else "dense"))


def _preprocess(opened: Model, size: int, settings: Settings, small: bool) -> Preprocess:
    """The file's own rule for preparing images, changed by the options --normalise and --crop."""
    known, crop = opened.preprocess, settings.crop
    mean, std = (known.mean, known.std) if settings.normalise is None else normalisation(settings.normalise)
    if crop is None:
        crop = COMMON_CROP if opened.kind == "foreign" and not small else known.crop
    return Preprocess(size, mean, std, known.interpolation, crop)


def _top1(record: dict[str, Any]) -> str:
    low, high = record["interval95"]
    return f"{record['top1']:.2f} % [{low:.2f}, {high:.2f}]"


def table(record: dict[str, Any]) -> list[str]:
    """A result as people read it."""
    lines = [
        f"{record['model']} ({record['state']})",
        f"top-1   {_top1(record)}",
        f"top-5   {record['top5']:.2f} %",
        f"images  {record['images']}, classes matched {record['classes_matched']}",
    ]
    if "logits_sha256" in record:
        lines.append(f"logits  SHA-256 {record['logits_sha256']}")
    if "activity" in record:
        shares = (f"{point} {100 * share:.1f} %" for point, share in record["activity"].items())
        lines.append(f"values that spike  {', '.join(shares)}")
    if record.get("energy"):
        lines.append(f"energy  {describe(record['energy'])}")
    if "compare" in record:
        found, other = record["compare"], record["compare"]["other"]
        low, high = found["difference_interval95"]
        verdict = "a difference" if found["p"] < SIGNIFICANT else "no difference that these images can show"
        lines += [
            f"beside  {other['model']} ({other['state']}), top-1 {_top1(other)}",
            f"        {found['difference']:+.2f} points [{low:+.2f}, {high:+.2f}]; only the first right on "
            f"{found['only_first']} images, only the second on {found['only_second']}",
            f"        McNemar's exact p = {found['p']:.3g}: {verdict}",
        ]
    if record.get("unreadable"):
        lines.append(f"{len(record['unreadable'])} images could not be read and were left out")
    return lines
