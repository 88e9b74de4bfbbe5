"""Accuracy of a session over many images, in one process or in shards over several, which are then merged."""

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
    """How many images were classified correctly, in `shards` out of `of` shards of a set of `total` images.

    An image that cannot be read is left out of `images` and named in `unreadable`.
    """

    images: int
    correct: int
    correct5: int
    total: int
    shards: tuple[int, ...] = (0,)
    of: int = 1
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

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Evaluation:
        """The inverse of `to_dict`, for files: every field is checked."""
        names = ("images", "correct", "correct5", "total", "of")
        if not isinstance(fields, dict) or not {*names, "shards"} <= fields.keys():
            raise LapisError(f"a result of an evaluation has the fields {', '.join(names)} and shards")
        numbers = {name: fields[name] for name in names}
        shards, unreadable = fields["shards"], fields.get("unreadable", [])
        if not isinstance(shards, list) or not all(_is_count(x) for x in [*numbers.values(), *shards]):
            raise LapisError(f"a result of an evaluation holds counts; seen: {fields}")
        if not isinstance(unreadable, list) or not all(isinstance(line, str) for line in unreadable):
            raise LapisError("a result of an evaluation names its unreadable images in a list of lines")
        return cls(**numbers, shards=tuple(shards), unreadable=tuple(unreadable))


def evaluate_session(
    session: Session,
    images: Collection,
    labels: Sequence[int] | npt.NDArray[Any],
    batch: int = 64,
    shard: tuple[int, int] = (0, 1),
    progress: Callable[[int, int], None] | None = None,
    watched: tuple[Tally, int] | None = None,
    answered: Callable[[list[int], npt.NDArray[np.float32]], None] | None = None,
    integers: Callable[[npt.NDArray[np.int64]], None] | None = None,
) -> Evaluation:
    """Count correct answers. `shard` (i, n) takes every n-th image from i on; each batch calls `progress(done, count)`.

    `watched` is a tally and the number of images that it needs: so many are traced, the others only run.
    `answered(indices, logits)` gets the logits of every batch, `integers(logits)` its integer logits.
    """
    index, of = check_shard(shard)
    if batch < 1:
        raise LapisError(f"batch={batch} must be at least 1")
    if len(images) != len(labels):
        raise LapisError(f"{len(images)} images came with {len(labels)} labels")
    indices = range(index, len(images), of)
    if not indices:
        raise LapisError(f"shard {index} of {of} has no image: the set holds {len(images)}; use fewer shards")
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
    return Evaluation(*counts, len(images), (index,), of, tuple(scores.unreadable))


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


def merge(results: Iterable[Evaluation]) -> Evaluation:
    """One result from those of all shards; a missing or repeated shard, or one of another set, is an error."""
    parts = list(results)
    if not parts:
        raise LapisError("no results were given to merge")
    total, of = parts[0].total, parts[0].of
    if any((part.total, part.of) != (total, of) for part in parts):
        seen = sorted({(part.total, part.of) for part in parts})
        raise LapisError(f"these results are of different sets or splits (images, shards): {seen}")
    shards = sorted(shard for part in parts for shard in part.shards)
    if shards != list(range(of)):
        missing = sorted(set(range(of)) - set(shards))
        doubled = sorted({shard for shard in shards if shards.count(shard) > 1})
        raise LapisError(f"{of} shards are needed, each once; missing: {missing}, given twice: {doubled}")
    images, correct, correct5 = (sum(getattr(p, name) for p in parts) for name in ("images", "correct", "correct5"))
    unreadable = tuple(line for part in parts for line in part.unreadable)
    if images + len(unreadable) != total:
        raise LapisError(f"the shards hold {images} images of a set of {total}; a result was cut short")
    return Evaluation(images, correct, correct5, total, tuple(shards), of, unreadable)


def check_shard(shard: tuple[int, int]) -> tuple[int, int]:
    """Return (i, n) if 0 <= i < n, else raise."""
    index, of = shard
    if not (_is_count(index) and _is_count(of)) or not index < of:
        raise LapisError(f"shard {index}/{of} does not exist; use i/n with 0 <= i < n, for instance 0/4")
    return index, of


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
