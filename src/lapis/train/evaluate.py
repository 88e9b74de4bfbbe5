"""The scores of a torch network on a set of images."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from lapis._util.metrics import WATCHED_IMAGES, Accuracy
from lapis.convert.evaluated import Evaluated
from lapis.data.loader import PixelBatch
from lapis.errors import LapisError


def evaluate(
    network: Evaluated,
    batches: Iterable[PixelBatch],
    watched: int = WATCHED_IMAGES,
    on_batch: Callable[[Accuracy], None] = lambda scores: None,
) -> Accuracy:
    """Scores over all batches; activities are measured on the first `watched` images."""
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
