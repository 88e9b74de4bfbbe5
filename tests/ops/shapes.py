"""Awkward shapes: one, primes, one under and one over each tile; every window with every size."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

TOKENS = (1, 2, 15, 16, 17, 37, 64, 197, 577)
CHANNELS = (1, 31, 32, 64, 80)
WINDOWS = (1, 15, 20)

# (N, M, C, T): every N meets every C and every T; M differs from N in every other shape.
SHAPES = [
    (n, n if i % 2 else max(1, n * 2 // 3), c, WINDOWS[i % len(WINDOWS)])
    for i, (n, c) in enumerate(itertools.product(TOKENS, CHANNELS))
]


def codes(seed: int, shape: tuple[int, ...], window: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, window + 1, shape, dtype=np.uint8)
