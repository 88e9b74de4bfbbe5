"""The kernels of the native library on numpy arrays, for tests and benchmarks of each kernel by itself.

Lapis itself calls them from its engine, and in training by torch operators (`lapis.ops.*.torch_native`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from lapis import native
from lapis.codes import check_integers
from lapis.config import RowScale
from lapis.errors import LapisError
from lapis.ops.arrays import check_pair, check_values
from lapis.ops.attention.reference import LARGEST_TABLE, check_heads, float_tables
from lapis.ops.integer_attention.reference import AffinityTables, check_accumulator

Array = npt.NDArray[Any]
Float = npt.NDArray[np.float32]
# The lowest, the highest and the minimum code that fires.
CodeRange = tuple[float, float, float]
# Keys are multiplied as signed bytes.
MAX_DOT_CODE = 127


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

    def arguments(self, relation: int = native.L1, zero_code: int = 0) -> tuple[Any, ...]:
        """The first arguments of every fused kernel: sizes and strides, then the arrays."""
        sizes, keys = self.q.shape, self.k.shape[2]
        strides = outer_strides(self.q), outer_strides(self.k)
        record = native.pairs(sizes, keys, *strides, native.CODES_U8, relation, zero_code)
        return record, self.q, self.k, self.v, native.Strides(*outer_strides(self.v))


def l1_distance(q_codes: npt.ArrayLike, k_codes: npt.ArrayLike, threads: int = 1) -> npt.NDArray[np.int32]:
    """D_ij = sum_c |q_ic - k_jc|: q (..., N, C), k (..., M, C) of integers 0..255  ->  (..., N, M) int32."""
    q, k = as_u8(q_codes, "q"), as_u8(k_codes, "k")
    return distance(native.L1, q, k, np.dtype(np.int32), threads)


def l1_distance_float(q_codes: Float, k_codes: Float, threads: int = 1) -> Float:
    """The same of integer-valued float32 codes, as float32."""
    return distance(native.L1, _as_f32(q_codes, "q"), _as_f32(k_codes, "k"), np.dtype(np.float32), threads)


def l1_distance_backward(grad: Float, q_codes: Any, k_codes: Any, threads: int = 1) -> tuple[Float, Float]:
    """dq_ic = sum_j g_ij sign(q_ic - k_jc), dk_jc = -sum_i g_ij sign(q_ic - k_jc).

    grad (..., N, M), codes as u8 or as integer-valued float32, spanning at most 0..254.
    """
    return distance_backward(native.L1, grad, np.asarray(q_codes), np.asarray(k_codes), threads)


def hamming_distance(q_codes: npt.ArrayLike, k_codes: npt.ArrayLike, threads: int = 1) -> npt.NDArray[np.int32]:
    """D_ij = sum_c [q_ic != k_jc]: q (..., N, C), k (..., M, C) of integers 0..255  ->  (..., N, M) int32."""
    return distance(native.HAMMING, as_u8(q_codes, "q"), as_u8(k_codes, "k"), np.dtype(np.int32), threads)


def hamming_distance_backward(grad: Float, q_codes: Any, k_codes: Any, threads: int = 1) -> tuple[Float, Float]:
    """The surrogate sign(q_ic - k_jc) [|q_ic - k_jc| <= 1] for the slope; codes u8 or integer-valued float32."""
    return distance_backward(native.HAMMING, grad, np.asarray(q_codes), np.asarray(k_codes), threads)


def distance(relation: int, q: Any, k: Any, dtype: np.dtype[Any], threads: int) -> npt.NDArray[Any]:
    """Any relation of the library, for codes that are u8 or float32 alike."""
    check_pair(q.shape, k.shape)
    out = np.empty((*q.shape[:-1], k.shape[-2]), dtype)
    record, q4, k4 = _record(relation, q, k)
    out_type = native.OUT_I32 if dtype == np.int32 else native.OUT_F32
    native.call("lapis_distance", record, q4, k4, out, out_type, threads)
    return out


def distance_backward(relation: int, grad: Float, q: Any, k: Any, threads: int) -> tuple[Float, Float]:
    """The gradient of any relation of the library."""
    check_pair(q.shape, k.shape)
    g = np.ascontiguousarray(grad, np.float32)
    if g.shape != (*q.shape[:-1], k.shape[-2]):
        raise LapisError(f"a gradient of shape {g.shape} was given for distances {(*q.shape[:-1], k.shape[-2])}")
    grad_q, grad_k = np.empty(q.shape, np.float32), np.empty(k.shape, np.float32)
    record, q4, k4 = _record(relation, q, k)
    native.call("lapis_distance_backward", record, q4, k4, g, grad_q, grad_k, threads)
    return grad_q, grad_k


def _record(relation: int, q: Any, k: Any) -> tuple[native.Pairs, Any, Any]:
    q4, k4 = as_kernel_array(q), as_kernel_array(k)
    kinds = {np.dtype(np.uint8): native.CODES_U8, np.dtype(np.float32): native.CODES_F32}
    if q.dtype != k.dtype or q.dtype not in kinds:
        raise LapisError(f"codes of dtype {q.dtype} and {k.dtype} were given; use uint8 or float32 for both")
    record = native.pairs(q4.shape, k4.shape[2], outer_strides(q4), outer_strides(k4), kinds[q.dtype], relation)
    return record, q4, k4


def _as_f32(codes: npt.ArrayLike, name: str) -> Float:
    array = np.asarray(codes)
    if array.dtype != np.float32:
        raise LapisError(f"{name} has dtype {array.dtype}; this variant takes integer-valued float32 codes")
    return array


def attention(
    q_codes: npt.ArrayLike,
    k_codes: npt.ArrayLike,
    v: npt.ArrayLike,
    tau: npt.ArrayLike,
    row_scale: RowScale = "pow2",
    delay: npt.ArrayLike | None = None,
    threads: int = 1,
) -> npt.NDArray[np.float32]:
    """Y_i = sum_j W_ij v_j, ln A_ij = -(D_ij + delay_ij) / tau_h.

    q, k (..., H, N, C) integers 0..255, v (..., H, M, C) codes or values, tau (H,), delay (H, N, M) nonnegative
    integers  ->  (..., H, N, C) float32.
    """
    arrays = AttentionArrays.of(q_codes, k_codes, np.asarray(v, np.float32))
    heads, rows, channels = arrays.q.shape[1:]
    delays = check_delay(delay, heads, rows, arrays.k.shape[2])
    largest = max(int(arrays.q.max(initial=0)), int(arrays.k.max(initial=0)))
    size = channels * largest + 1 + (0 if delays is None or not delays.size else int(delays.max()))
    table, gain = float_tables(check_heads(tau, heads), size)
    out = np.empty(arrays.q.shape, np.float32)
    affinities = (table, gain, size, delays, native.ROW_SCALES[row_scale])
    native.call("lapis_attention", *arrays.arguments(), *affinities, out, native.Strides(*outer_strides(out)), threads)
    return out.reshape(np.shape(q_codes))


def check_delay(delay: npt.ArrayLike | None, heads: int, rows: int, keys: int) -> npt.NDArray[np.int32] | None:
    """Position delays as contiguous int32 (H, N, M), nonnegative."""
    if delay is None:
        return None
    array = np.asarray(delay)
    if not np.issubdtype(array.dtype, np.integer) or (array.size and int(array.min()) < 0):
        raise LapisError("a position delay is a nonnegative integer number of leak steps")
    if array.size and int(array.max()) > LARGEST_TABLE:
        raise LapisError(f"a delay of {int(array.max())} leak steps was seen; up to {LARGEST_TABLE} are possible")
    try:
        spread = np.broadcast_to(array, (heads, rows, keys))
    except ValueError:
        raise LapisError(f"delays of shape {array.shape} do not fit (H, N, M) = {(heads, rows, keys)}") from None
    return np.ascontiguousarray(spread, np.int32)


def integer_attention(
    q_codes: npt.ArrayLike,
    k_codes: npt.ArrayLike,
    v_codes: npt.ArrayLike,
    tables: AffinityTables,
    delay: npt.ArrayLike | None = None,
    threads: int = 1,
    zero_code: int | None = None,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32]]:
    """The same integers as the reference: acc (..., H, N, C) int32 and Z (..., H, N) uint32.

    With a `zero_code`, codes are compared by the dot products of what they are above it.
    """
    arrays = AttentionArrays.of(q_codes, k_codes, as_u8(v_codes, "v"))
    if zero_code is not None and max(arrays.q.max(initial=0), arrays.k.max(initial=0)) > MAX_DOT_CODE:
        raise LapisError(f"codes above {MAX_DOT_CODE} were seen; dot products take 0..{MAX_DOT_CODE}")
    relation = (native.L1, 0) if zero_code is None else (native.DOT, zero_code)
    largest = int(arrays.v.max(initial=0))
    check_accumulator(arrays.v.shape[-2], largest)
    heads, exponents, size = tables.table.shape
    if heads != arrays.q.shape[1] or tables.row_exponent.shape != (heads, size):
        raise LapisError(f"tables of shape {tables.table.shape} were given for {arrays.q.shape[1]} heads")
    table = np.ascontiguousarray(tables.table, np.uint16)
    row_exponent = np.ascontiguousarray(tables.row_exponent, np.uint16)
    delays = check_delay(delay, heads, arrays.q.shape[2], arrays.k.shape[2])
    acc, mass = np.empty(arrays.q.shape, np.int32), np.empty(arrays.q.shape[:3], np.uint32)
    inputs = (*arrays.arguments(*relation), largest, table, row_exponent, exponents, size, delays)
    native.call("lapis_integer_attention", *inputs, acc, native.Strides(*outer_strides(acc)), mass, threads)
    shape = np.shape(q_codes)
    return acc.reshape(shape), mass.reshape(shape[:-1])


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


def _forward(
    x: Float, step: npt.ArrayLike, offset: float | None, codes: CodeRange, threads: int, want_value: bool
) -> Float:
    x = np.ascontiguousarray(x, np.float32)
    s, sizes, per_row = _layout(x, step)
    out = np.empty_like(x)
    targets = (out, None) if want_value else (None, out)
    native.call("lapis_lsq", x, *sizes, s, per_row, _scalar(offset), *codes, *targets, threads)
    return out


def _backward(
    name: str,
    grad: Float,
    x: Float,
    step: npt.ArrayLike,
    offset: float | None,
    low: int,
    high: int,
    threads: int = 1,
    min_code: int = 1,
) -> LsqGradients:
    """The gradients of `lapis.ops.lsq.eager`, with a grad_scale of one."""
    x, g = np.ascontiguousarray(x, np.float32), np.ascontiguousarray(grad, np.float32)
    if g.shape != x.shape:
        raise LapisError(f"a gradient of shape {g.shape} was given for x of shape {x.shape}")
    s, sizes, per_row = _layout(x, step)
    rule = (*sizes, s, per_row, _scalar(offset), low, high, min_code)
    grad_x, grad_step, grad_offset = np.empty_like(x), np.empty(s.shape), np.empty(1)
    native.call(name, x, g, *rule, grad_x, grad_step, grad_offset, threads)
    return LsqGradients(grad_x, grad_step.reshape(np.shape(step)), float(grad_offset[0]))


lsq_value_backward = partial(_backward, "lapis_lsq_value_backward")
lsq_codes_backward = partial(_backward, "lapis_lsq_codes_backward")


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
