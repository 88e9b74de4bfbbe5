"""Time-to-first-spike coding: integer codes to spike trains and back.

Time is the first axis of every spike train, as in the paper: `spikes[n]` is what happens at step n.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lapis.codes import check_codes, check_window
from lapis.errors import LapisError


def encode(codes: npt.ArrayLike, window: int) -> npt.NDArray[np.bool_]:
    """E(z)[n] = 1 iff z > 0 and n = T - z, 0 <= n < T.

    codes (...) in 0..T  ->  spikes (T, ...), at most one spike per neuron; larger codes fire earlier.
    """
    checked = check_codes(codes, window)
    step = np.arange(window).reshape(window, *([1] * checked.ndim))
    return np.asarray(step == window - checked.astype(np.int64))


def first_spike(spikes: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """phi(X) = the smallest n with X[n] = 1, or T if there is none.

    spikes (T, ...) of booleans or 0/1  ->  latency (...) in 0..T.
    """
    array = np.asarray(spikes)
    if array.ndim < 1 or array.shape[0] < 1:
        raise LapisError(f"a spike train needs a time axis of at least one step; the shape is {array.shape}")
    if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
        raise LapisError(f"spikes of dtype {array.dtype} hold values other than 0 and 1")
    fired = array.astype(bool)
    return np.asarray(np.where(fired.any(axis=0), fired.argmax(axis=0), fired.shape[0]), dtype=np.int64)


def latency(codes: npt.ArrayLike, window: int) -> npt.NDArray[np.int64]:
    """t = T - z, in 0..T; a silent neuron (z = 0) has latency T."""
    return window - check_codes(codes, window).astype(np.int64)


def decode(latencies: npt.ArrayLike, window: int) -> npt.NDArray[np.int64]:
    """z = T - t: the code that a latency stands for."""
    return window - check_codes(latencies, window, "latencies").astype(np.int64)


def split_on_off(codes: npt.ArrayLike, window: int) -> npt.NDArray[Any]:
    """Signed codes -T..T (..., C) as ON and OFF neurons (..., 2 C): one pair per code, of which at most one fires."""
    check_window(window)
    array = np.asarray(codes)
    if not np.issubdtype(array.dtype, np.integer) or (array.size and int(np.abs(array).max()) > window):
        raise LapisError(f"signed codes must be integers in {-window}..{window}")
    return np.concatenate([np.maximum(array, 0), np.maximum(-array, 0)], axis=-1)
