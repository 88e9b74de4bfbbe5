"""Arrays as the native kernels want them: four axes, channels contiguous, strides in elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lapis.errors import LapisError

Array = npt.NDArray[Any]


def as_four_axes(x: Array) -> Array:
    """(..., H, N, C) as (B, H, N, C), copied only where its channels are not contiguous or its axes do not merge."""
    if x.ndim < 2:
        raise LapisError(f"an array of shape {x.shape} was seen; kernels take (..., N, C)")
    if x.ndim < 4:
        x = x.reshape((1,) * (4 - x.ndim) + x.shape)
    elif x.ndim > 4:
        x = x.reshape(-1, *x.shape[-3:])
    aligned = all(stride % x.itemsize == 0 for stride in x.strides)
    if (x.shape[-1] > 1 and x.strides[-1] != x.itemsize) or not aligned:
        x = np.ascontiguousarray(x)
    return x


def outer_strides(x: Array) -> tuple[int, int, int]:
    """Strides of b, h and n in elements."""
    b, h, n = (stride // x.itemsize for stride in x.strides[:3])
    return b, h, n


def as_u8(codes: npt.ArrayLike, name: str) -> npt.NDArray[np.uint8]:
    """Integer codes as u8, checked; u8 is taken as it is."""
    array = np.asarray(codes)
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_ or not np.issubdtype(array.dtype, np.integer):
        raise LapisError(f"{name} has dtype {array.dtype}; codes are integers 0..255, so round and cast them first")
    if array.size and (int(array.min()) < 0 or int(array.max()) > 255):
        raise LapisError(f"{name} spans {int(array.min())}..{int(array.max())}; codes lie in 0..255")
    return array.astype(np.uint8)
