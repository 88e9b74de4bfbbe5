"""Learned step size quantization by the native library, on float32 numpy arrays.

The same IEEE operations in the same order as the torch version: equal to it in every bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lapis import native
from lapis.errors import LapisError

Float = npt.NDArray[np.float32]
# The lowest, the highest and the minimum code that fires.
CodeRange = tuple[float, float, float]


@dataclass(frozen=True)
class LsqGradients:
    """Gradients of x, of the step (its shape, float64) and of the offset (a float64)."""

    x: Float
    step: npt.NDArray[np.float64]
    offset: float


def lsq_value(
    x: Float, step: npt.ArrayLike, offset: float | None, low: int, high: int, threads: int = 1, min_code: int = 1
) -> Float:
    """z s + o; step is one number, or (O, 1) for x (O, I)."""
    return _forward(x, step, offset, (low, high, min_code), threads, want_value=True)


def lsq_codes(
    x: Float, step: npt.ArrayLike, offset: float | None, low: int, high: int, threads: int = 1, min_code: int = 1
) -> Float:
    """z = clamp(floor((x - o)/s + 1/2), low, high), or 0 where |z| < min_code, as integer-valued float32."""
    return _forward(x, step, offset, (low, high, min_code), threads, want_value=False)


def lsq_value_backward(
    grad: Float,
    x: Float,
    step: npt.ArrayLike,
    offset: float | None,
    low: int,
    high: int,
    threads: int = 1,
    min_code: int = 1,
) -> LsqGradients:
    """Of value: see `lapis.ops.lsq.eager`, with a grad_scale of one."""
    return _backward("lapis_lsq_value_backward", grad, x, step, offset, (low, high, min_code), threads)


def lsq_codes_backward(
    grad: Float,
    x: Float,
    step: npt.ArrayLike,
    offset: float | None,
    low: int,
    high: int,
    threads: int = 1,
    min_code: int = 1,
) -> LsqGradients:
    """Of codes: see `lapis.ops.lsq.eager`, with a grad_scale of one."""
    return _backward("lapis_lsq_codes_backward", grad, x, step, offset, (low, high, min_code), threads)


def _forward(
    x: Float, step: npt.ArrayLike, offset: float | None, codes: CodeRange, threads: int, want_value: bool
) -> Float:
    x = np.ascontiguousarray(x, np.float32)
    s, sizes, per_row = _layout(x, step)
    o = _scalar(offset)
    rule = (s.ctypes.data, per_row, None if o is None else o.ctypes.data, *codes)
    out = np.empty_like(x)
    targets = (out.ctypes.data, None) if want_value else (None, out.ctypes.data)
    native.check(native.library().lapis_lsq(x.ctypes.data, *sizes, *rule, *targets, threads))
    return out


def _backward(
    name: str, grad: Float, x: Float, step: npt.ArrayLike, offset: float | None, codes: CodeRange, threads: int
) -> LsqGradients:
    x, g = np.ascontiguousarray(x, np.float32), np.ascontiguousarray(grad, np.float32)
    if g.shape != x.shape:
        raise LapisError(f"a gradient of shape {g.shape} was given for x of shape {x.shape}")
    s, sizes, per_row = _layout(x, step)
    o = _scalar(offset)
    rule = (s.ctypes.data, per_row, None if o is None else o.ctypes.data, *codes)
    grad_x, grad_step, grad_offset = np.empty_like(x), np.empty(s.shape), np.empty(1)
    targets = (grad_x.ctypes.data, grad_step.ctypes.data, grad_offset.ctypes.data)
    native.check(getattr(native.library(), name)(x.ctypes.data, g.ctypes.data, *sizes, *rule, *targets, threads))
    return LsqGradients(grad_x, grad_step.reshape(np.shape(step)), float(grad_offset[0]))


def _layout(x: Float, step: npt.ArrayLike) -> tuple[Float, tuple[int, int], int]:
    """The steps, rows and columns, and whether every row has its own step."""
    s = np.ascontiguousarray(step, np.float32)
    if s.size == 1:
        return s, (1, x.size), 0
    if x.ndim != 2 or s.shape != (x.shape[0], 1):
        raise LapisError(f"steps of shape {s.shape} do not fit x {x.shape}; use one step, or (O, 1) for x (O, I)")
    return s, (x.shape[0], x.shape[1]), 1


def _scalar(offset: float | None) -> Float | None:
    return None if offset is None else np.asarray(offset, np.float32).reshape(1)
