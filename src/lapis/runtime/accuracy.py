"""Accuracy of a session over many images, with the counts behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lapis._util.metrics import Accuracy
from lapis.errors import LapisError
from lapis.preprocess import UnreadableImageError
from lapis.runtime.session import Session


class Collection(Protocol):
    """Images by index: an array (n, height, width, 3), a list of arrays or files."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def evaluate_session(
    session: Session,
    images: Collection,
    labels: Sequence[int] | npt.NDArray[Any],
    batch: int = 64,
    progress: Callable[[int, int], None] | None = None,
    watched: int = 0,
    answered: Callable[[list[int], npt.NDArray[np.float32]], None] | None = None,
    integers: Callable[[npt.NDArray[np.int64]], None] | None = None,
) -> Accuracy:
    """Count correct answers; each batch calls `progress(done, count)`.

    So many images as `watched` are traced for the tally, the others only run. `answered(indices, logits)` gets the
    logits of every batch, `integers(logits)` its integer logits.
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
            if scores.tally.images < watched:
                whole, trace = session.watch_integers(read)
                scores.tally.add(trace)
            else:
                whole = session.run_integers(read)
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
    return scores


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
