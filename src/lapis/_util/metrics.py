"""The counts of an evaluation, the same for every executor. Torch is not needed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lapis.trace import Tally

TOP = 5
# The 97.5th percentile of the normal distribution, for intervals that hold 95 %.
Z95 = 1.959964
# Activities settle to the third digit within this many images; tracing more only takes time.
WATCHED_IMAGES = 256


@dataclass
class Accuracy:
    """Counts over images, which can be added over processes; accuracies are in percent."""

    images: int = 0
    top1_correct: int = 0
    top5_correct: int = 0
    loss_sum: float = 0.0
    # Whether each image was classified correctly, in order.
    hits: list[bool] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    unreadable: list[str] = field(default_factory=list)
    energy: dict[str, Any] | None = None

    @property
    def top1(self) -> float:
        return 100 * self.top1_correct / max(1, self.images)

    @property
    def top5(self) -> float:
        return 100 * self.top5_correct / max(1, self.images)

    @property
    def loss(self) -> float:
        """Mean cross entropy."""
        return self.loss_sum / max(1, self.images)

    def count(self, logits: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> None:
        """Count one batch: logits (n, classes), labels (n,). Of equal logits, the lower class comes first."""
        rows = np.asarray(logits, np.float64)
        label_logit = rows[np.arange(len(labels)), labels][:, None]
        # A class is ahead of the label's if its logit is larger, or equal with a lower index.
        ahead = (rows > label_logit) | ((rows == label_logit) & (np.arange(rows.shape[1]) < labels[:, None]))
        rank = ahead.sum(axis=1)
        self.images += len(labels)
        self.hits += (rank == 0).tolist()
        self.top1_correct += int((rank == 0).sum())
        self.top5_correct += int((rank < TOP).sum())
        peak = rows.max(axis=1, keepdims=True)
        self.loss_sum += float((np.log(np.exp(rows - peak).sum(axis=1)) + peak[:, 0] - label_logit[:, 0]).sum())

    @classmethod
    def merged(cls, parts: list[Accuracy]) -> Accuracy:
        """The scores of all processes together."""
        total = cls()
        for part in parts:
            for name in ("images", "top1_correct", "top5_correct", "loss_sum", "unreadable"):
                setattr(total, name, getattr(total, name) + getattr(part, name))
            total.tally.merge(part.tally)
        return total

    def as_dict(self) -> dict[str, Any]:
        """The values for logs and for printing."""
        record: dict[str, Any] = {
            "top1": self.top1,
            "top5": self.top5,
            "images": self.images,
            "correct": self.top1_correct,
            "correct5": self.top5_correct,
            "total": self.images + len(self.unreadable),
            "loss": self.loss,
            "unreadable": self.unreadable,
        }
        if self.tally.images:
            record["activity"] = {point: round(share, 6) for point, share in self.tally.activities().items()}
        if self.energy is not None:
            record["energy"] = self.energy
        return record


def interval95(right: int, images: int) -> tuple[float, float]:
    """Wilson's 95 % interval of an accuracy, in percent: how far so few images pin it down."""
    share, z2 = right / images, Z95 * Z95
    middle = (share + z2 / (2 * images)) / (1 + z2 / images)
    half = Z95 / (1 + z2 / images) * math.sqrt(share * (1 - share) / images + z2 / (4 * images * images))
    return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)


def paired_test(first: list[bool], second: list[bool]) -> dict[str, Any]:
    """Two networks on the same images: McNemar's exact test, and the 95 % interval of their difference in points.

    p is the chance that a fair coin falls at least as unevenly over the images on which only one is correct. The
    interval is that of Agresti and Min (2005), with half an image added to each of the four cells.
    """
    only_first = sum(a and not b for a, b in zip(first, second, strict=True))
    only_second = sum(b and not a for a, b in zip(first, second, strict=True))
    n, d, total, term = only_first + only_second, only_first - only_second, 0, 1
    for k in range(min(only_first, only_second) + 1):
        total, term = total + term, term * (n - k) // (k + 1)  # term = n choose k
    padded = len(first) + 2
    half = Z95 * math.sqrt(n + 1 - d * d / padded)
    return {
        "only_first": only_first,
        "only_second": only_second,
        "difference": 100 * d / len(first),
        "difference_interval95": (100 * (d - half) / padded, 100 * (d + half) / padded),
        "p": min(1.0, 2 * total / 2**n),
    }
