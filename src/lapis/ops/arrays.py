"""Arrays as the native kernels want them: four axes, channels contiguous, strides in elements; checks of shapes."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lapis import native
from lapis.codes import check_integers
from lapis.errors import LapisError

Array = npt.NDArray[Any]


def as_kernel_array(x: Array) -> Array:
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
    array = check_integers(codes, name)
    if array.dtype == np.uint8:
        return array
    if array.size and (int(array.min()) < 0 or int(array.max()) > 255):
        raise LapisError(f"{name} spans {int(array.min())}..{int(array.max())}; codes lie in 0..255")
    return array.astype(np.uint8)


@dataclass(frozen=True)
class AttentionArrays:
    """Queries and keys as u8 codes and values, (B, H, N, C) each, checked and ready for a fused kernel."""

    q: npt.NDArray[np.uint8]
    k: npt.NDArray[np.uint8]
    v: Array

    @classmethod
    def of(cls, q_codes: npt.ArrayLike, k_codes: npt.ArrayLike, v: Array) -> AttentionArrays:
        q, k = as_u8(q_codes, "q"), as_u8(k_codes, "k")
        check_pair(q.shape, k.shape)
        check_values(k.shape, v.shape)
        if v.shape[-1] != q.shape[-1]:
            raise LapisError(f"values have {v.shape[-1]} channels, queries {q.shape[-1]}; the fused kernel needs equal")
        return cls(as_kernel_array(q), as_kernel_array(k), as_kernel_array(v))

    def arguments(self) -> tuple[Any, ...]:
        """The first arguments of every fused kernel: sizes and strides, then the arrays."""
        sizes, keys = self.q.shape, self.k.shape[2]
        record = native.pairs(sizes, keys, outer_strides(self.q), outer_strides(self.k), native.CODES_U8, native.L1)
        addresses = (self.q.ctypes.data, self.k.ctypes.data, self.v.ctypes.data)
        return ctypes.byref(record), *addresses, native.Strides(*outer_strides(self.v))


def is_tensor(array: object) -> bool:
    """Whether `array` is a torch tensor; torch is not loaded to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def shared_u8(
    q_codes: npt.ArrayLike, k_codes: npt.ArrayLike
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]] | None:
    """Integer codes of queries and keys as u8, signed ones raised by one shift that no distance sees.

    None where they are no integers or span more than 255: only a reference can take them.
    """
    q, k = np.asarray(q_codes), np.asarray(k_codes)
    if not all(np.issubdtype(codes.dtype, np.integer) for codes in (q, k)):
        return None
    if q.dtype == k.dtype == np.uint8 or not (q.size and k.size):
        return q.astype(np.uint8), k.astype(np.uint8)
    low = min(int(q.min()), int(k.min()))
    if max(int(q.max()), int(k.max())) - low > 255:
        return None
    return (q.astype(np.int64) - low).astype(np.uint8), (k.astype(np.int64) - low).astype(np.uint8)


def check_pair(q_shape: Sequence[int], k_shape: Sequence[int]) -> None:
    """Queries (..., N, C) and keys (..., M, C) must agree in all but the token axis."""
    q, k = tuple(q_shape), tuple(k_shape)
    if len(q) < 2 or len(k) < 2:
        raise LapisError(f"queries {q} and keys {k} need at least a token and a channel axis: (..., N, C)")
    if q[:-2] != k[:-2] or q[-1] != k[-1]:
        raise LapisError(
            f"queries {q} and keys {k} must agree in every axis but the token one: (..., N, C), (..., M, C)"
        )


def check_values(k_shape: Sequence[int], v_shape: Sequence[int]) -> None:
    """Values (..., M, C') must have one row a key."""
    k, v = tuple(k_shape), tuple(v_shape)
    if len(v) < 2 or k[:-1] != v[:-1]:
        raise LapisError(f"values {v} must have one row for each key {k}: (..., M, C')")
