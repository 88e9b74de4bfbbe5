"""Integer codes 0..T: the rounding rule and the power-of-two exponent that every other module uses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from lapis.errors import LapisError

# The smallest float64 above the real sqrt(1/2); no float64 lies between the two, so `m >= SQRT_HALF` is exact.
SQRT_HALF = math.sqrt(0.5)

# Integers up to here convert to float64 without loss.
EXACT_INTEGER_LIMIT = 1 << 53

# A code and its ON/OFF counterpart must both fit the u8 kernels (2 T <= 127 keeps a signed sum in int8 too).
MAX_WINDOW = 63


def check_window(window: int) -> int:
    """Return `window` if it is an integer T in 1..63, else raise."""
    if isinstance(window, bool) or not isinstance(window, (int, np.integer)):
        raise LapisError(f"window={window!r} is not an integer; use a number of steps from 1 to {MAX_WINDOW}")
    if not 1 <= window <= MAX_WINDOW:
        raise LapisError(f"window={window} is outside 1..{MAX_WINDOW}; the paper uses 15 and 20")
    return int(window)


def check_integers(codes: npt.ArrayLike, name: str = "codes") -> npt.NDArray[Any]:
    """Return `codes` as an array if they are integers, else raise."""
    array = np.asarray(codes)
    if array.dtype == np.bool_ or not np.issubdtype(array.dtype, np.integer):
        raise LapisError(f"{name} has dtype {array.dtype}; codes are integers, so round and cast them first")
    return array


def check_codes(codes: npt.ArrayLike, window: int, name: str = "codes") -> npt.NDArray[Any]:
    """Return `codes` as an integer array if every value lies in 0..window, else raise."""
    check_window(window)
    array = check_integers(codes, name)
    if array.size:
        low, high = int(array.min()), int(array.max())
        if low < 0 or high > window:
            raise LapisError(f"{name} spans {low}..{high}; codes lie in 0..{window} for a window of {window} steps")
    return array


def check_tau(tau: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return `tau` as float64 if every value is positive and finite, else raise."""
    array = np.asarray(tau, dtype=np.float64)
    if not (np.isfinite(array) & (array > 0)).all():
        bad = array[~(np.isfinite(array) & (array > 0))].flat[0]
        raise LapisError(f"tau={bad} is not a time constant; every head needs a finite tau > 0")
    return array


def round_half_up(x: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """floor(x + 1/2): the rounding that a threshold comparison makes; ties go up.

    The sum is taken in float64, so it is exact for every float32 `x` of magnitude below 2**28.
    """
    return np.floor(np.asarray(x, dtype=np.float64) + 0.5)


def silence(codes: npt.NDArray[Any], min_code: int) -> npt.NDArray[Any]:
    """z where |z| >= min_code, else 0: a neuron that has not fired by step T - min_code stays silent."""
    return codes if min_code <= 1 else np.where(np.abs(codes) < min_code, codes.dtype.type(0), codes)


def pow2_exponent(z: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """k = round(log2 z), exactly, for z > 0.

    z = m 2**e with m in [1/2, 1), and round(log2 z) is e where m >= sqrt(1/2), else e - 1. A tie would need an
    irrational z, so there is none.
    """
    array = np.asarray(z)
    if np.issubdtype(array.dtype, np.integer) and array.size and int(array.max()) > EXACT_INTEGER_LIMIT:
        raise LapisError(f"z={int(array.max())} exceeds 2**53; the exponent is exact only up to there")
    real = array.astype(np.float64)
    if not (np.isfinite(real) & (real > 0)).all():
        raise LapisError("z must be positive and finite to have a power-of-two exponent")
    mantissa, exponent = np.frexp(real)
    return exponent.astype(np.int64) - (mantissa < SQRT_HALF)
