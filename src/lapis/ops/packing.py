"""Four 6-bit integers in three bytes.

A row w[0..I-1] of integers in -31..31 is padded with zeros to a multiple of four. Four neighbours, each as u = w mod 64
(two's complement in six bits), form the 24-bit number u0 + 64 u1 + 64**2 u2 + 64**3 u3, stored least byte first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lapis.errors import LapisError

LARGEST = 31


def packed_width(columns: int) -> int:
    """Bytes of one packed row of `columns` integers: 3 ceil(I / 4)."""
    return -(-columns // 4) * 3


def pack6(weights: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Integers (O, I) in -31..31  ->  bytes (O, 3 ceil(I/4))."""
    w = np.asarray(weights)
    if w.ndim != 2 or not np.issubdtype(w.dtype, np.integer):
        raise LapisError(f"6-bit weights are a matrix of integers; seen shape {w.shape} and dtype {w.dtype}")
    if w.size and not -LARGEST <= int(w.min()) <= int(w.max()) <= LARGEST:
        raise LapisError(f"weights span {int(w.min())}..{int(w.max())}; six bits hold -{LARGEST}..{LARGEST}")
    u = np.pad(w, ((0, 0), (0, -w.shape[1] % 4))).astype(np.uint8) & 63
    u0, u1, u2, u3 = (u[:, k::4] for k in range(4))
    parts = (u0 | (u1 << 6), (u1 >> 2) | (u2 << 4), (u2 >> 4) | (u3 << 2))
    return np.stack(parts, axis=-1).reshape(w.shape[0], -1)


def unpack6(packed: npt.NDArray[np.uint8], columns: int) -> npt.NDArray[np.int8]:
    """Bytes (O, 3 ceil(I/4))  ->  int8 (O, I), the inverse of `pack6`.

    The code -32, which `pack6` never writes, and padding other than zero are refused: one row has one packed form.
    """
    if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != packed_width(columns):
        raise LapisError(
            f"packed weights of shape {packed.shape} and dtype {packed.dtype} do not hold rows of {columns}; "
            f"expected bytes of shape (rows, {packed_width(columns)})"
        )
    b0, b1, b2 = (packed[:, k::3] for k in range(3))
    u = np.stack((b0 & 63, (b0 >> 6) | ((b1 & 15) << 2), (b1 >> 4) | ((b2 & 3) << 4), b2 >> 2), axis=-1)
    # Six bits moved to the top of an int8 and shifted back take their sign along.
    signed = (u.reshape(packed.shape[0], -1) << 2).view(np.int8) >> 2
    if signed.size and int(signed.min()) < -LARGEST:
        raise LapisError(f"packed weights hold -32; six-bit weights lie in -{LARGEST}..{LARGEST}")
    if signed[:, columns:].any():
        raise LapisError("packed weights have bits set behind the last column; the padding must be zero")
    return np.ascontiguousarray(signed[:, :columns])
