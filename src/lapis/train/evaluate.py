"""The scores of a torch network on a set of images."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from lapis._util.metrics import WATCHED_IMAGES, Accuracy
from lapis.convert.torch_executor import DeployedEvaluator
from lapis.data.images import Images
from lapis.data.loader import PixelBatch, TestBatches
from lapis.energy import energy_of
from lapis.errors import LapisError
from lapis.nn.model import LapisViT
from lapis.train.distributed import Processes, StopRequest
from lapis.train.recipe import Recipe

BATCH = 100


class _StoppedError(Exception):
    """The run must stop in the middle of a test."""


def evaluate(
    network: DeployedEvaluator,
    batches: Iterable[PixelBatch],
    watched: int = WATCHED_IMAGES,
    on_batch: Callable[[Accuracy], None] = lambda scores: None,
) -> Accuracy:
    """Accuracy over all batches; activities are measured on the first `watched` images."""
    scores = Accuracy()
    training = network.training
    network.eval()
    device = next(chain(network.parameters(), network.buffers())).device
    try:
        for pixels, labels, unreadable in batches:
            scores.unreadable += unreadable
            if len(pixels):
                images = pixels.to(device, non_blocking=True)
                if network.config.quantize and scores.tally.images < watched:
                    logits, trace = network.watch(images)
                    scores.tally.add(trace)
                else:
                    logits = network(images)
                scores.count(logits.float().cpu().numpy(), labels.numpy())
            on_batch(scores)
    finally:
        network.train(training)
    if not scores.images:
        raise LapisError("there was no image to evaluate on")
    return scores


def evaluate_student(
    student: LapisViT, images: Images, recipe: Recipe, processes: Processes, stop: StopRequest,
    show: Callable[[str], None],
) -> Accuracy | None:  # fmt: skip
    """The accuracy, activity and energy of a network in training, over all processes; None if a stop was requested."""

    def on_batch(scores: Accuracy) -> None:
        # A single process may stop at once; several must all finish, because they wait for each other's counts.
        if stop.requested and processes.world == 1:
            raise _StoppedError
        percent = min(100, 100 * scores.images * processes.world // len(images))
        show(f"testing {percent} %  top-1 {scores.top1:.2f} %")

    rank, world = processes.rank, processes.world
    batches = TestBatches(images, recipe.preprocess, BATCH, rank, world, recipe.data.workers, processes.device)
    network = DeployedEvaluator(student, recipe.preprocess)
    try:
        own = evaluate(network, batches, WATCHED_IMAGES // world, on_batch)
    except _StoppedError:
        return None
    scores = Accuracy.merged(processes.gather(own))
    scores.energy = energy_of(student.config, scores.tally)
    return scores
