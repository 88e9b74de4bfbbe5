"""Laplacian attention in integers by the native library: no N x M matrix is stored."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lapis import native
from lapis.errors import LapisError
from lapis.ops.arrays import AttentionArrays, as_u8, outer_strides
from lapis.ops.attention.native import check_delay
from lapis.ops.integer_attention.reference import AffinityTables, check_accumulator


def integer_attention(
    q_codes: npt.ArrayLike,
    k_codes: npt.ArrayLike,
    v_codes: npt.ArrayLike,
    tables: AffinityTables,
    delay: npt.ArrayLike | None = None,
    threads: int = 1,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32]]:
    """The same integers as the reference: acc (..., H, N, C) int32 and Z (..., H, N) uint32."""
    arrays = AttentionArrays.of(q_codes, k_codes, as_u8(v_codes, "v"))
    largest = int(arrays.v.max(initial=0))
    check_accumulator(arrays.v.shape[-2], largest)
    heads, exponents, size = tables.table.shape
    if heads != arrays.q.shape[1] or tables.row_exponent.shape != (heads, size):
        raise LapisError(f"tables of shape {tables.table.shape} were given for {arrays.q.shape[1]} heads")
    table = np.ascontiguousarray(tables.table, np.uint16)
    row_exponent = np.ascontiguousarray(tables.row_exponent, np.uint16)
    delays = check_delay(delay, heads, arrays.q.shape[2], arrays.k.shape[2])
    acc, mass = np.empty(arrays.q.shape, np.int32), np.empty(arrays.q.shape[:3], np.uint32)
    native.check(
        native.library().lapis_integer_attention(
            *arrays.arguments(),
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
    shape = np.shape(q_codes)
    return acc.reshape(shape), mass.reshape(shape[:-1])
