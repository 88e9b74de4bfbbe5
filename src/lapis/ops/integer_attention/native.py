"""Laplacian attention in integers by the native library: no N x M matrix is stored."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from lapis import native
from lapis.errors import LapisError
from lapis.ops.arrays import as_kernel_array, as_u8, outer_strides
from lapis.ops.attention.native import check_delay
from lapis.ops.integer_attention.reference import AffinityTables, check_accumulator
from lapis.ops.shapes import check_pair, check_values


def integer_attention(
    q_codes: npt.ArrayLike,
    k_codes: npt.ArrayLike,
    v_codes: npt.ArrayLike,
    tables: AffinityTables,
    delay: npt.ArrayLike | None = None,
    threads: int = 1,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32]]:
    """The same integers as the reference: acc (..., H, N, C) int32 and Z (..., H, N) uint32."""
    q, k, v = as_u8(q_codes, "q"), as_u8(k_codes, "k"), as_u8(v_codes, "v")
    check_pair(q.shape, k.shape)
    check_values(k.shape, v.shape)
    if v.shape[-1] != q.shape[-1]:
        raise LapisError(f"values have {v.shape[-1]} channels, queries {q.shape[-1]}; the fused kernel needs equal")
    q4, k4, v4 = as_kernel_array(q), as_kernel_array(k), as_kernel_array(v)
    largest = int(v.max(initial=0))
    check_accumulator(v.shape[-2], largest)
    heads, exponents, size = tables.table.shape
    if heads != q4.shape[1] or tables.row_exponent.shape != (heads, size):
        raise LapisError(f"tables of shape {tables.table.shape} were given for {q4.shape[1]} heads")
    table = np.ascontiguousarray(tables.table, np.uint16)
    row_exponent = np.ascontiguousarray(tables.row_exponent, np.uint16)
    delays = check_delay(delay, heads, q4.shape[2], k4.shape[2])
    acc, mass = np.empty(q4.shape, np.int32), np.empty(q4.shape[:3], np.uint32)
    record = native.pairs(q4.shape, k4.shape[2], outer_strides(q4), outer_strides(k4), native.CODES_U8, native.L1)
    native.check(
        native.library().lapis_integer_attention(
            ctypes.byref(record),
            q4.ctypes.data,
            k4.ctypes.data,
            v4.ctypes.data,
            native.Strides(*outer_strides(v4)),
            largest,
            table.ctypes.data,
            row_exponent.ctypes.data,
            exponents,
            size,
            None if delays is None else delays.ctypes.data,
            acc.ctypes.data,
            native.Strides(*outer_strides(acc)),
            mass.ctypes.data,
            threads,
        )
    )
    return acc.reshape(q.shape), mass.reshape(q.shape[:-1])
