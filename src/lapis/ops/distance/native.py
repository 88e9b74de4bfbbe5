"""Distances of codes and their gradients by the native library, on numpy arrays."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from lapis import native
from lapis.errors import LapisError
from lapis.ops.arrays import as_kernel_array, as_u8, check_pair, outer_strides

Float = npt.NDArray[np.float32]


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
    native.check(
        native.library().lapis_distance(
            ctypes.byref(record), q4.ctypes.data, k4.ctypes.data, out.ctypes.data, out_type, threads
        )
    )
    return out


def distance_backward(relation: int, grad: Float, q: Any, k: Any, threads: int) -> tuple[Float, Float]:
    """The gradient of any relation of the library."""
    check_pair(q.shape, k.shape)
    g = np.ascontiguousarray(grad, np.float32)
    if g.shape != (*q.shape[:-1], k.shape[-2]):
        raise LapisError(f"a gradient of shape {g.shape} was given for distances {(*q.shape[:-1], k.shape[-2])}")
    grad_q, grad_k = np.empty(q.shape, np.float32), np.empty(k.shape, np.float32)
    record, q4, k4 = _record(relation, q, k)
    native.check(
        native.library().lapis_distance_backward(
            ctypes.byref(record),
            q4.ctypes.data,
            k4.ctypes.data,
            g.ctypes.data,
            grad_q.ctypes.data,
            grad_k.ctypes.data,
            threads,
        )
    )
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
