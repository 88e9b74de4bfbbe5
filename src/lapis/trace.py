"""Measuring points of a network, the codes recorded there, and tallies of how many neurons fired."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from lapis.errors import LapisError

Point = Literal["attention_in", "q", "k", "v", "readout", "mlp_in", "mlp_hidden"]
POINTS: tuple[Point, ...] = get_args(Point)

Codes = npt.NDArray[Any]


@dataclass
class Trace:
    """The codes of one forward pass: `trace[block, point]` is an integer array with the batch first.

    Tokens come second, channels last; q, k and v have their heads joined. Signed points hold -T..T.
    """

    window: int
    codes: dict[tuple[int, Point], Codes] = field(default_factory=dict)

    def __getitem__(self, key: tuple[int, Point]) -> Codes:
        return self.codes[key]

    def note(self, block: int, point: Point, codes: Codes) -> None:
        self.codes[block, point] = codes

    @classmethod
    def joined(cls, parts: Sequence[Trace]) -> Trace:
        """One trace of several batches, in their order."""
        whole = cls(parts[0].window)
        for key in parts[0]:
            whole.note(*key, np.concatenate([part[key] for part in parts]))
        return whole

    def __iter__(self) -> Iterator[tuple[int, Point]]:
        return iter(self.codes)


class Watched(NamedTuple):
    """The logits of a run, and the codes at every measuring point."""

    logits: Any
    trace: Trace


@dataclass
class Tally:
    """How many neurons fired at each block and point, over any number of images.

    activity = fired / neurons, the paper's rho: the share of neurons that emit their single spike.
    """

    fired: dict[tuple[int, Point], int] = field(default_factory=dict)
    neurons: dict[tuple[int, Point], int] = field(default_factory=dict)
    images: int = 0

    def add(self, trace: Trace) -> None:
        """Count one more batch."""
        batch = 0
        for key in trace:
            codes = trace[key]
            self.fired[key] = self.fired.get(key, 0) + int(np.count_nonzero(codes))
            self.neurons[key] = self.neurons.get(key, 0) + codes.size
            batch = codes.shape[0]
        self.images += batch

    def merge(self, other: Tally) -> None:
        """Add the counts of another tally, for instance from another process."""
        for key, count in other.fired.items():
            self.fired[key] = self.fired.get(key, 0) + count
            self.neurons[key] = self.neurons.get(key, 0) + other.neurons[key]
        self.images += other.images

    def activity(self, point: Point, block: int | None = None) -> float:
        """The share of neurons that fired at `point`, in one block or over all of them."""
        keys = [key for key in self.fired if key[1] == point and block in (None, key[0])]
        neurons = sum(self.neurons[key] for key in keys)
        if not neurons:
            where = "any block" if block is None else f"block {block}"
            raise LapisError(f"nothing was measured at point {point!r} in {where}")
        return sum(self.fired[key] for key in keys) / neurons

    def activities(self) -> dict[Point, float]:
        """Activity at every point that was measured, over all blocks."""
        measured = {point for _, point in self.fired}
        return {point: self.activity(point) for point in POINTS if point in measured}
