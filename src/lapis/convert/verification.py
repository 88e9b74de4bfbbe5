"""Compare executors with the integer model: the logits, and every code at every measuring point of every block.

An executor is a function from bytes to integer logits and a trace, and its tolerance says how well it must agree.
`verify` compares any number of executors, given as a table of name -> Executor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from lapis.deploy import integer
from lapis.deploy.network import Network
from lapis.deploy.simulate import Events
from lapis.deploy.simulate_native import fast_simulator
from lapis.errors import LapisError
from lapis.preprocess import Pixels
from lapis.trace import POINTS, Point, Trace, Watched

# equal: every bit. ties: the same codes, except for a share where float rounding decides. none: only reported.
Tolerance = Literal["equal", "ties", "none"]
# The share of codes that may differ at one point if a float sum is compared with an integer one. Affinities of 15 bits
# change a readout by about 1e-4 of a step, and in one row in about 1e5 they change its power of two.
TIE_SHARE = 2e-3


@dataclass(frozen=True)
class Executor:
    """A way to run a network, and how far it may differ from the integer model."""

    run: Callable[[Pixels], Watched]
    tolerance: Tolerance


@dataclass(frozen=True)
class Mismatch:
    """One code that differs: its place, the code of the integer model and the code of the executor."""

    block: int
    point: Point
    image: int
    token: int
    channel: int
    expected: int
    seen: int

    def __str__(self) -> str:
        return (
            f"block {self.block}, {self.point}, image {self.image}, token {self.token}, channel {self.channel}: "
            f"{self.expected} expected, {self.seen} seen"
        )


@dataclass
class PointCount:
    """Codes compared at one block and point, how many differ and by how much at most."""

    codes: int = 0
    differing: int = 0
    largest: int = 0

    @property
    def share(self) -> float:
        return self.differing / max(1, self.codes)


@dataclass
class Agreement:
    """One executor against the integer model, over all images."""

    name: str
    tolerance: Tolerance
    images: int = 0
    seconds: float = 0.0
    points: dict[tuple[int, Point], PointCount] = field(default_factory=dict)
    first: Mismatch | None = None
    logits_differing: int = 0
    largest_logit_difference: int = 0
    same_top1: int = 0
    right: int = 0

    @property
    def codes(self) -> int:
        return sum(count.codes for count in self.points.values())

    @property
    def differing(self) -> int:
        return sum(count.differing for count in self.points.values())

    @property
    def largest(self) -> int:
        return max((count.largest for count in self.points.values()), default=0)

    @property
    def passed(self) -> bool:
        if self.tolerance == "equal":
            return self.differing == 0 and self.logits_differing == 0
        if self.tolerance == "ties":
            return all(count.share <= TIE_SHARE for count in self.points.values())
        return True

    def add(self, expected: Watched, seen: Watched, labels: Any) -> None:
        """Compare one batch; an executor that gives no codes is judged by its logits."""
        (logits, trace), (other_logits, other_trace) = expected, seen
        if other_trace.codes and trace.codes.keys() != other_trace.codes.keys():
            raise LapisError(f"{self.name} measured other points than the integer model")
        for block, point in sorted(other_trace, key=lambda key: (key[0], POINTS.index(key[1]))):
            self._compare(block, point, trace[block, point], other_trace[block, point])
        self.logits_differing += int((other_logits != logits).any(axis=1).sum())
        self.largest_logit_difference = max(self.largest_logit_difference, int(np.abs(other_logits - logits).max()))
        top1 = other_logits.argmax(axis=1)
        self.same_top1 += int((top1 == logits.argmax(axis=1)).sum())
        if labels is not None:
            self.right += int((top1 == labels).sum())
        self.images += len(logits)

    def _compare(self, block: int, point: Point, expected: Any, seen: Any) -> None:
        if expected.shape != seen.shape:
            raise LapisError(f"{self.name} has shape {seen.shape} at {point} of block {block}, not {expected.shape}")
        difference = np.abs(expected.astype(np.int64) - seen.astype(np.int64))
        count = self.points.setdefault((block, point), PointCount())
        count.codes += difference.size
        count.differing += int(np.count_nonzero(difference))
        count.largest = max(count.largest, int(difference.max(initial=0)))
        if self.first is None and difference.any():
            image, token, channel = (int(axis[0]) for axis in np.nonzero(difference))
            values = int(expected[image, token, channel]), int(seen[image, token, channel])
            self.first = Mismatch(block, point, self.images + image, token, channel, *values)

    def to_dict(self) -> dict[str, Any]:
        return {
            "tolerance": self.tolerance,
            "passed": self.passed,
            "images": self.images,
            "codes": self.codes,
            "codes_differing": self.differing,
            "largest_code_difference": self.largest,
            "images_with_other_logits": self.logits_differing,
            "largest_logit_difference": self.largest_logit_difference,
            "same_top1": self.same_top1,
            "right": self.right,
            "seconds_per_image": round(self.seconds / max(1, self.images), 4),
            "first_mismatch": None if self.first is None else {**vars(self.first), "text": str(self.first)},
            "points": {
                f"{block}.{point}": [count.codes, count.differing, count.largest]
                for (block, point), count in self.points.items()
            },
        }


@dataclass(frozen=True)
class Report:
    """The results of all executors; `events` are those of the spiking one, if it ran."""

    reference: Agreement
    agreements: tuple[Agreement, ...]
    labelled: bool
    events: Events | None = None

    @property
    def passed(self) -> bool:
        return all(agreement.passed for agreement in self.agreements)


def integer_executor(network: Network) -> Executor:
    return Executor(partial(integer.watch, network), "equal")


def spiking_executor(network: Network, events: Events) -> Executor:
    """The simulator, in C where it can be; its counts are added to `events`."""
    simulator = fast_simulator(network)

    def run(images: Pixels) -> Watched:
        logits, trace, batch_events = simulator.run(images)
        events.add(batch_events)
        return Watched(logits, trace)

    return Executor(run, "equal")


def verify(
    network: Network,
    executors: dict[str, Executor],
    batches: Iterable[tuple[Pixels, Any]],
    on_batch: Callable[[int], None] = lambda images: None,
) -> Report:
    """Compare `executors` with the integer model of `network` on batches of (images, labels or None)."""
    defining, reference = integer_executor(network), Agreement("integers", "equal")
    agreements = tuple(Agreement(name, executor.tolerance) for name, executor in executors.items())
    labelled = True
    for images, labels in batches:
        expected = _timed(reference, defining.run, images)
        reference.add(expected, expected, labels)
        for agreement, executor in zip(agreements, executors.values(), strict=True):
            agreement.add(expected, _timed(agreement, executor.run, images), labels)
        labelled = labelled and labels is not None
        on_batch(reference.images)
    if not reference.images:
        raise LapisError("there was no image to verify on; pass at least one")
    return Report(reference, agreements, labelled)


def in_batches(executor: Executor, size: int) -> Executor:
    """The same executor, given at most `size` images at a time."""

    def run(images: Pixels) -> Watched:
        parts = [executor.run(images[start : start + size]) for start in range(0, len(images), size)]
        return Watched(np.concatenate([part.logits for part in parts]), Trace.joined([part.trace for part in parts]))

    return Executor(run, executor.tolerance)


def _timed(agreement: Agreement, run: Callable[[Pixels], Watched], images: Pixels) -> Watched:
    start = time.perf_counter()
    result = run(images)
    agreement.seconds += time.perf_counter() - start
    return result
