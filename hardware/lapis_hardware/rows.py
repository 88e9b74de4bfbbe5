"""What the integer model computes in rows of one head: the stimuli of a circuit, and the answers that it must give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lapis.codes import pow2_exponent
from lapis.deploy import Network
from lapis.ops import integer_attention, l1_distance
from lapis.trace import Trace

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Rows of one head on B images of N tokens: codes (B, N, C), distance and affinity (B, N, N).

    mass and scale (B, N) are the row sum and its power of two, sums (B, N, C) the mixed values before the readout,
    readout (B, N, C) the codes after it.
    """

    q: Int64
    k: Int64
    v: Int64
    distance: Int64
    affinity: Int64
    mass: Int64
    scale: Int64
    sums: Int64
    readout: Int64


def rows_of(network: Network, trace: Trace, block: int, head: int) -> Rows:
    """The rows of one head on the images of a trace."""
    heads = network.config.heads
    q, k, v, readout = (_split_heads(np.asarray(trace[block, point]), heads) for point in ("q", "k", "v", "readout"))
    tables = network.tables[block]
    sums, mass = integer_attention(q, k, v, tables)
    distance = np.asarray(l1_distance(q[:, head], k[:, head])).astype(np.int64)
    gain = tables.row_exponent[head][distance.min(axis=-1, keepdims=True)]
    return Rows(
        q=q[:, head].astype(np.int64),
        k=k[:, head].astype(np.int64),
        v=v[:, head].astype(np.int64),
        distance=distance,
        affinity=tables.table[head][gain, distance].astype(np.int64),
        mass=mass[:, head].astype(np.int64),
        scale=np.asarray(pow2_exponent(mass[:, head])).astype(np.int64),
        sums=sums[:, head].astype(np.int64),
        readout=readout[:, head].astype(np.int64),
    )


def _split_heads(codes: npt.NDArray[Any], heads: int) -> npt.NDArray[Any]:
    """(B, N, D) -> (B, H, N, C)."""
    return np.asarray(codes.reshape(*codes.shape[:2], heads, -1).transpose(0, 2, 1, 3))
