"""Relative positions on a grid of patches: the row of the position table that each pair of tokens uses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# Offsets of the class token come last in the table, in BEiT's order: from it, to it, from it to itself.
CLASS_ENTRIES = 3


def offset_count(grid: int) -> int:
    """Rows of the table: every offset between two patches, and the class token's."""
    return (2 * grid - 1) ** 2 + CLASS_ENTRIES


def relative_offsets(grid: int) -> npt.NDArray[np.int64]:
    """The row of the table for every pair of tokens (N, N), N = grid**2 + 1, class token first."""
    y, x = (axis.reshape(-1) for axis in np.divmod(np.arange(grid * grid, dtype=np.int64), grid))
    span = 2 * grid - 1
    index = np.empty((grid**2 + 1, grid**2 + 1), dtype=np.int64)
    index[1:, 1:] = (y[:, None] - y[None, :] + grid - 1) * span + (x[:, None] - x[None, :] + grid - 1)
    index[0, :], index[:, 0], index[0, 0] = span**2, span**2 + 1, span**2 + 2
    return index
