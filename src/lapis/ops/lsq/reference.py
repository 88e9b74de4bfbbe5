"""Learned step size quantization: real values to integer codes and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lapis.codes import round_half_up, silence
from lapis.errors import LapisError


def lsq_codes(
    x: npt.ArrayLike, step: npt.ArrayLike, offset: npt.ArrayLike | None, low: int, high: int, min_code: int = 1
) -> npt.NDArray[np.int64]:
    """z = clamp(floor((x - o)/s + 1/2), low, high), or 0 where |z| < min_code.

    low = 0 for unsigned and offset codes, -T for signed ones (negative codes are OFF spikes), -31 for 6-bit weights.
    """
    real, s = np.asarray(x, dtype=np.float64), np.asarray(step, dtype=np.float64)
    if not np.isfinite(real).all():
        raise LapisError("x holds NaN or infinity; only finite numbers have a code")
    if not (s > 0).all():
        raise LapisError(f"step={s.min()} must be positive")
    if low >= high:
        raise LapisError(f"an empty code range {low}..{high} was given")
    shifted = real if offset is None else real - np.asarray(offset, dtype=np.float64)
    if not 1 <= min_code <= high:
        raise LapisError(f"min_code={min_code} is outside 1..{high}; with 1 every code but zero fires")
    return silence(np.clip(round_half_up(shifted / s), low, high).astype(np.int64), min_code)


def lsq_value(
    x: npt.ArrayLike, step: npt.ArrayLike, offset: npt.ArrayLike | None, low: int, high: int, min_code: int = 1
) -> npt.NDArray[Any]:
    """z s + o: the real value that the code of x stands for."""
    value = lsq_codes(x, step, offset, low, high, min_code) * np.asarray(step, dtype=np.float64)
    return np.asarray(value if offset is None else value + np.asarray(offset, dtype=np.float64))
