"""Accuracy of a session over many images, with the counts behind it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lapis._util.metrics import Accuracy
from lapis.errors import LapisError
from lapis.preprocess import UnreadableImageError
from lapis.runtime.session import Session
from lapis.trace import Tally


class Collection(Protocol):
    """Images by index: an array (n, height, width, 3), a list of arrays or files."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True)
class Evaluation:
    """How many images of a set of `total` were classified correctly.

    An image that cannot be read is left out of `images` and named in `unreadable`.
    """

    images: int
    correct: int
    correct5: int
    total: int
    unreadable: tuple[str, ...] = ()

    @property
    def top1(self) -> float:
        """Percent of images whose likeliest class is correct."""
        return 100.0 * self.correct / self.images

    @property
    def top5(self) -> float:
        """Percent of images whose correct class is among the five likeliest."""
        return 100.0 * self.correct5 / self.images

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "top1": self.top1, "top5": self.top5}


def evaluate_session(
    session: Session,
    images: Collection,
    labels: Sequence[int] | npt.NDArray[Any],
    batch: int = 64,
    progress: Callable[[int, int], None] | None = None,
    watched: tuple[Tally, int] | None = None,
    answered: Callable[[list[int], npt.NDArray[np.float32]], None] | None = None,
    integers: Callable[[npt.NDArray[np.int64]], None] | None = None,
) -> Evaluation:
    """Count correct answers; each batch calls `progress(done, count)`.

    `watched` is a tally and the number of images that it needs: so many are traced, the others only run.
    `answered(indices, logits)` gets the logits of every batch, `integers(logits)` its integer logits.
    """
    if batch < 1:
        raise LapisError(f"batch={batch} must be at least 1")
    if len(images) != len(labels):
        raise LapisError(f"{len(images)} images came with {len(labels)} labels")
    if not len(images):
        raise LapisError("there are no images to evaluate on; give at least one")
    indices = range(len(images))
    truth, scores = np.asarray(labels), Accuracy()
    for start in range(0, len(indices), batch):
        read, chosen = _read(images, indices[start : start + batch], scores.unreadable)
        if read:
            whole = _answer(session, read, watched)
            if integers is not None:
                integers(whole)
            logits = session.real_logits(whole)
            scores.count(logits, truth[chosen])
            if answered is not None:
                answered(chosen, logits)
        if progress is not None:
            progress(min(start + batch, len(indices)), len(indices))
    if not scores.images:
        raise LapisError(f"none of the {len(indices)} images could be read; the first: {scores.unreadable[0]}")
    counts = (scores.images, scores.top1_correct, scores.top5_correct)
    return Evaluation(*counts, len(images), tuple(scores.unreadable))


def _read(images: Collection, indices: Iterable[int], unreadable: list[str]) -> tuple[list[Any], list[int]]:
    """The images that can be read and their indices; the others go to `unreadable`."""
    read, chosen = [], []
    for index in indices:
        try:
            read.append(images[index])
        except UnreadableImageError as error:
            unreadable.append(str(error))
        else:
            chosen.append(index)
    return read, chosen


def _answer(session: Session, read: list[Any], watched: tuple[Tally, int] | None) -> npt.NDArray[np.int64]:
    if watched is None or watched[0].images >= watched[1]:
        return session.run_integers(read)
    logits, trace = session.watch_integers(read)
    watched[0].add(trace)
    return np.asarray(logits)
