"""The deployed arithmetic: every operation that an executor must repeat bit for bit.

fl() is one rounding to float32. Each float operation is rounded on its own, in the order written, never contracted into
a fused multiply-add; sums run over integers, so their order does not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lapis._util.locks import blas_section
from lapis.codes import silence

Array = npt.NDArray[Any]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int8]

# The residual stream is kept within -2**26..2**26 - 1, so that D squares of it fit an int64 for D up to MAX_WIDTH.
STREAM_BITS = 26
STREAM_LIMIT = 1 << STREAM_BITS
MAX_WIDTH = 2048

# Integers below this size are exact in float32, so a float32 matrix product of them is exact in any order.
EXACT_FLOAT32 = 1 << 24
# Stands for minus infinity as a level; it is finite, so that a file holds no infinity.
LOWEST = np.float32(np.finfo(np.float32).min)

# The final token, standardised, as int16 with this many fractional bits; |u| <= sqrt(D) < 32 fits for D < 1024 and
# for larger D it saturates only for a token with all its energy in one channel.
POOLED_BITS = 10
INT16 = np.iinfo(np.int16)


def affine(total: Array, scale: Float32, shift: Float32) -> Float32:
    """fl(fl(fl(total) scale) + shift): nondecreasing in `total` where scale >= 0."""
    return np.asarray(total.astype(np.float32) * scale + shift, dtype=np.float32)


def floor_codes(pre: Float32, low: int, high: int, min_code: int = 1) -> Codes:
    """clamp(floor(pre), low, high), or 0 below the minimum code; the 1/2 of the rounding rule is part of `pre`."""
    return silence(np.clip(np.floor(pre), low, high).astype(np.int8), min_code)


def ladder_codes(pre: Float32, rise: Float32, fall: Float32, low: int, min_code: int = 1) -> Codes:
    """low + #{m : pre >= rise[m] or pre <= fall[m]}, or 0 below the minimum code; rise, fall (levels,).

    These comparisons are GELU and its quantizer.
    """
    codes = np.full(pre.shape, low, dtype=np.int8)
    for up, down in zip(rise, fall, strict=True):
        codes += pre >= up if down == LOWEST else (pre >= up) | (pre <= down)
    return silence(codes, min_code)


def standardise(stream: Int32, eps: float) -> Float32:
    """LayerNorm without gain and shift: (..., D) integers  ->  fl(fl(c) rstd).

    m = floor((2 S1 + D) / 2D), the integer nearest to the mean; c = h - m; var = (sum c^2 - (sum c)^2 / D) / D and
    1 / sqrt(var + eps) in float64, then rstd = fl(that). `eps` is in units of the stream: 1e-6 * 4**fraction_bits.
    """
    width = stream.shape[-1]
    total = stream.sum(axis=-1, keepdims=True, dtype=np.int64)
    mean = rounded_quotient(total, width)
    centred, rest = stream - mean, total - width * mean
    squares = np.square(centred).sum(axis=-1, keepdims=True)
    variance = (squares.astype(np.float64) - (rest * rest).astype(np.float64) / width) / width
    rstd = (1.0 / np.sqrt(variance + eps)).astype(np.float32)
    return np.asarray(centred.astype(np.float32) * rstd, dtype=np.float32)


def rounded_quotient(total: Int64, count: int) -> Int64:
    """floor(total / count + 1/2), in integers."""
    return np.asarray((2 * total + count) // (2 * count))


def saturate(stream: Int64) -> Int32:
    """Clamp the stream to its limits, as it is stored."""
    return np.clip(stream, -STREAM_LIMIT, STREAM_LIMIT - 1).astype(np.int32)


def pooled_token(unit: Float32) -> Float32:
    """clamp(floor(fl(fl(1024 u) + 1/2))) in the range of int16: the input of the head."""
    scaled = unit * np.float32(1 << POOLED_BITS)
    return np.asarray(np.clip(np.floor(scaled + np.float32(0.5)), INT16.min, INT16.max), dtype=np.float32)


def add_to_stream(stream: Int32, delta: Float32) -> Int32:
    """clamp(h + floor(delta)): the residual stream saturates. |delta| < 2**30, which is checked with the weights."""
    return saturate(stream.astype(np.int64) + np.floor(delta).astype(np.int64))


def round_shift(value: Int64, shift: Array) -> Int64:
    """floor(value / 2**shift + 1/2) for shift >= 0."""
    half = np.where(shift > 0, np.int64(1) << np.maximum(shift.astype(np.int64) - 1, 0), np.int64(0))
    return np.asarray((value + half) >> shift.astype(np.int64))


def exact_product(left: Array, right: Array) -> Int64:
    """left @ right of integers whose sums of magnitudes stay below 2**53: exact in float64 in any order."""
    with blas_section:
        return np.asarray(left.astype(np.float64) @ right.astype(np.float64)).astype(np.int64)


def real_logits(logits: Int64, head_exponent: int) -> Float32:
    """Integer logits as the real numbers that they stand for."""
    return np.ldexp(logits.astype(np.float64), -(POOLED_BITS + head_exponent)).astype(np.float32)
