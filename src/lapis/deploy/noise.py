"""Noise of spike times: what becomes of the codes of a window when its spikes come early, late or not at all."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from lapis.deploy.arithmetic import Codes
from lapis.errors import LapisError
from lapis.trace import POINTS, Point


@dataclass(frozen=True)
class Noise:
    """A spike moves by j steps, j uniform in -jitter..jitter, and is lost with probability `drop`, at `points` only.

    A spike that would come before its window comes at step 0; one that would miss its deadline is lost. Silent neurons
    stay silent. The draws depend on seed, block, point and the codes of the image, so on no batch and no executor.
    """

    jitter: int = 0
    drop: float = 0.0
    seed: int = 0
    points: tuple[Point, ...] = POINTS

    def __post_init__(self) -> None:
        if self.jitter < 0 or self.seed < 0 or not 0 <= self.drop <= 1:
            raise LapisError(f"{self}: jitter and seed must not be negative, and drop must lie in 0..1")

    def __call__(self, codes: Codes, window: int, min_code: int, block: int, point: Point) -> Codes:
        """The codes that the noisy spikes of one image stand for; codes (tokens, channels) of int8."""
        if point not in self.points:
            return codes
        draw = np.random.default_rng([self.seed, block, POINTS.index(point), zlib.crc32(codes.tobytes())])
        late = draw.integers(-self.jitter, self.jitter, codes.shape, endpoint=True)
        heard = draw.random(codes.shape, np.float32) >= self.drop
        moved = np.minimum(np.abs(codes) - late, window)
        return np.where(heard & (codes != 0) & (moved >= min_code), np.sign(codes) * moved, 0).astype(np.int8)
