"""The resize of docs/format.md ("From an image to bytes"), written from its text: slow, and without Pillow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lapis.preprocess import Pixels

BITS = 22


def _bilinear(u: float) -> float:
    u = abs(u)
    return 1.0 - u if u < 1.0 else 0.0


def _bicubic(u: float) -> float:
    u = abs(u)
    if u < 1.0:
        return (1.5 * u - 2.5) * u * u + 1.0
    return (((u - 5.0) * u + 8.0) * u - 4.0) * -0.5 if u < 2.0 else 0.0


def _sinc(u: float) -> float:
    return math.sin(math.pi * u) / (math.pi * u) if u else 1.0


def _lanczos(u: float) -> float:
    return _sinc(u) * _sinc(u / 3.0) if -3.0 <= u < 3.0 else 0.0


FILTERS: dict[str, tuple[float, Callable[[float], float]]] = {
    "bilinear": (1.0, _bilinear),
    "bicubic": (2.0, _bicubic),
    "lanczos": (3.0, _lanczos),
}


def resize(image: Pixels, width: int, height: int, interpolation: str) -> Pixels:
    """(h, w, 3) -> (height, width, 3): rows first, then columns."""
    wide = _one_pass(image.swapaxes(0, 1), width, interpolation).swapaxes(0, 1)
    return _one_pass(wide, height, interpolation)


def _one_pass(lines: Pixels, new: int, interpolation: str) -> Pixels:
    """Along the first axis: (old, ...) -> (new, ...)."""
    old = lines.shape[0]
    if old == new:
        return lines
    if interpolation == "nearest":
        return lines[_nearest(old, new)]
    out = [_weighted(lines, *_factors(old, new, number, *FILTERS[interpolation])) for number in range(new)]
    return np.stack(out)


def _nearest(old: int, new: int) -> list[int]:
    step = old / new
    at, chosen = step * 0.5, []
    for _ in range(new):
        chosen.append(int(at))
        at += step
    return chosen


def _factors(old: int, new: int, number: int, reach: float, weigh: Callable[[float], float]) -> tuple[int, list[int]]:
    ratio = old / new
    widen = max(ratio, 1.0)
    support, centre = reach * widen, (number + 0.5) * ratio
    first = max(int(centre - support + 0.5), 0)
    stop = min(int(centre + support + 0.5), old)
    raw = [weigh((p - centre + 0.5) * (1.0 / widen)) for p in range(first, stop)]
    # A plain loop: sum() of floats compensates its rounding from Python 3.12 on.
    total = 0.0
    for value in raw:
        total += value
    parts = [value / total if total else value for value in raw]
    return first, [int(part * (1 << BITS) + (0.5 if part >= 0 else -0.5)) for part in parts]


def _weighted(lines: Pixels, first: int, factors: list[int]) -> Any:
    total = np.tensordot(np.array(factors), lines[first : first + len(factors)].astype(np.int64), axes=1)
    return np.clip((total + (1 << (BITS - 1))) >> BITS, 0, 255).astype(np.uint8)
