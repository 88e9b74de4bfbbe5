"""What a network answers to labelled images: right and wrong per class, what is taken for what, the worst mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lapis.data.images import ByIndex, Images, Labels
from lapis.runtime.accuracy import Evaluation, evaluate_session
from lapis.runtime.session import Session
from lapis.trace import Tally

# The 97.5th percentile of the normal distribution, for intervals that hold 95 %.
Z95 = 1.959964


@dataclass(frozen=True)
class Answers:
    """Answers to the images `indices` (n,): `shares` (n, K), the softmax of the logits; `labels` (n,) are the truth."""

    evaluation: Evaluation
    tally: Tally
    indices: npt.NDArray[np.int64]
    labels: Labels
    shares: npt.NDArray[np.float64]

    @property
    def predicted(self) -> Labels:
        """The likeliest class of each image, the lower of equal ones."""
        best: Labels = self.shares.argmax(axis=1)
        return best

    @property
    def confusion(self) -> npt.NDArray[np.int64]:
        """counts[truth, answer], (K, K)."""
        classes = self.shares.shape[1]
        counts = np.zeros((classes, classes), np.int64)
        np.add.at(counts, (self.labels, self.predicted), 1)
        return counts

    def worst(self, count: int) -> list[int]:
        """The places in `indices` of the wrong answers that the network was surest of, worst first."""
        wrong = np.flatnonzero(self.predicted != self.labels)
        order = np.argsort(-self.shares[wrong, self.predicted[wrong]], kind="stable")
        return [int(place) for place in wrong[order[:count]]]

    def confused(self, count: int) -> list[tuple[int, int, int]]:
        """(truth, answer, images) of the commonest mistakes."""
        counts = self.confusion
        np.fill_diagonal(counts, 0)
        order = np.argsort(-counts, axis=None, kind="stable")[:count]
        pairs = [(*(int(place) for place in np.unravel_index(index, counts.shape)),) for index in order]
        return [(truth, answer, int(counts[truth, answer])) for truth, answer in pairs if counts[truth, answer]]


def answer_images(
    session: Session, images: Images, watched: int, progress: Callable[[int, int], None] | None = None
) -> Answers:
    """Run a session on images; spikes are counted on the first `watched` of them."""
    chosen: list[int] = []
    rows: list[npt.NDArray[np.float64]] = []

    def note(indices: list[int], logits: npt.NDArray[np.float32]) -> None:
        chosen.extend(indices)
        exponential = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
        rows.append(exponential / exponential.sum(axis=1, keepdims=True))

    tally = Tally()
    evaluation = evaluate_session(
        session, ByIndex(images), images.labels, progress=progress, watched=(tally, watched), answered=note
    )
    places = np.asarray(chosen, np.int64)
    return Answers(evaluation, tally, places, images.labels[places], np.concatenate(rows))


def interval95(right: int, images: int) -> tuple[float, float]:
    """Wilson's 95 % interval of an accuracy, in percent: how far so few images pin it down."""
    share, z2 = right / images, Z95 * Z95
    middle = (share + z2 / (2 * images)) / (1 + z2 / images)
    half = Z95 / (1 + z2 / images) * math.sqrt(share * (1 - share) / images + z2 / (4 * images * images))
    return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)
