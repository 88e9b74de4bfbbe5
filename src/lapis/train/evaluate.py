"""A torch network's scores on a set of images."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

import torch

from lapis.convert.deployed import Deployed
from lapis.data.loader import Batch
from lapis.errors import LapisError
from lapis.nn.model import LapisViT
from lapis.train.scores import WATCHED_IMAGES, Scores


@torch.no_grad()
def evaluate(
    model: LapisViT | Deployed,
    batches: Iterable[Batch],
    watched: int = WATCHED_IMAGES,
    on_batch: Callable[[Scores], None] = lambda scores: None,
) -> Scores:
    """Scores of `model` in FP32, never under autocast; the first `watched` images also give activities."""
    scores = Scores()
    training = model.training
    model.eval()
    device = next(chain(model.parameters(), model.buffers())).device
    try:
        with torch.autocast(device.type, enabled=False):
            for batch in batches:
                scores.unreadable += batch.unreadable
                if len(batch.images):
                    _score_batch(model, batch, device, watched, scores)
                on_batch(scores)
    finally:
        model.train(training)
    if not scores.images:
        raise LapisError("there was no image to evaluate on")
    return scores


def _score_batch(model: LapisViT | Deployed, batch: Batch, device: torch.device, watched: int, scores: Scores) -> None:
    images = batch.images.to(device)
    if model.config.quantize and scores.tally.images < watched:
        logits, trace = model.watch(images)
        scores.tally.add(trace)
    else:
        logits = model(images)
    scores.count(logits.float().cpu().numpy(), batch.labels.numpy())
