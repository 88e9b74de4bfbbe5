"""The Laplacian in powers of two."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from lapis.config import LapisConfig
from lapis.deploy.network import Block, Shifts
from lapis.errors import LapisError
from lapis.nn.relations.distance import fit_heads, spread
from lapis.nn.relations.straight_through import passed
from lapis.nn.relations.table import TableRelation
from lapis.ops.l1_distance.torch_native import l1_distance
from lapis.relations.laplacian2 import Laplacian2Rule

LN2 = math.log(2.0)
MOST_HALVINGS = (1 << 16) - 1


class Laplacian2(TableRelation):
    """A_ij = 2**-floor(D_ij / m_h + 1/2), D the l1 distance of codes: m_h, learned, is the distance that halves A.

    floor has the slope 1. m starts as the Laplacian's tau does: where the readout is closest to softmax attention.
    """

    rule = Laplacian2Rule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.log_halving = nn.Parameter(torch.zeros(config.heads))

    @property
    def halving(self) -> Tensor:
        """m_h (H, 1, 1)."""
        return self.log_halving.exp().view(-1, 1, 1)

    def log_affinity(self, distance: Tensor) -> Tensor:
        halvings = distance / self.halving
        return -LN2 * passed((halvings + 0.5).floor(), halvings)

    @torch.no_grad()
    def fold(self, distances: int) -> Shifts:
        """The halvings that training computes, in its float32."""
        steps = torch.arange(distances, dtype=torch.float32, device=self.ready.device)
        halvings = (steps / self.halving[:, 0] + 0.5).floor()
        if float(halvings.max()) > MOST_HALVINGS:
            raise LapisError(
                f"an affinity halves {int(halvings.max())} times over all distances; a file holds {MOST_HALVINGS}"
            )
        return Shifts(halvings.cpu().numpy().astype(np.uint16))

    @torch.no_grad()
    def unfold(self, block: Block) -> None:
        assert block.shift is not None
        self.log_halving.copy_(torch.from_numpy(np.log(halving_distances(block.shift.halvings))))
        if (self.fold(block.shift.halvings.shape[1]).halvings != block.shift.halvings).any():
            raise LapisError(
                "the stored shifts are not round(D / m) for any m; start from the checkpoint that was packed"
            )

    @torch.no_grad()
    def meet(self, q: Tensor, k: Tensor, v: Tensor, readout: Tensor) -> None:
        self.calibrate(l1_distance(q, k))
        fit_heads(self.log_halving, lambda: self.mix(q, k, v), readout)

    @torch.no_grad()
    def calibrate(self, distance: Tensor) -> None:
        self.log_halving.copy_((spread(distance) * LN2).log())
        self.mark_ready()


def halving_distances(halvings: npt.NDArray[np.uint16]) -> npt.NDArray[np.float64]:
    """m_h with floor(D / m_h + 1/2) = halvings[h][D] for D = 0..S-1: (H, S) -> (H,), where there is one.

    n - 1/2 <= D/m < n + 1/2 bounds m from both sides; the middle of all bounds is taken.
    """
    n, distance = halvings.astype(np.float64), np.arange(halvings.shape[1], dtype=np.float64)
    least = (distance / (n + 0.5)).max(axis=1)
    most = np.where(n > 0, distance / np.maximum(n - 0.5, 0.5), np.inf).min(axis=1)
    return np.asarray(np.where(np.isfinite(most), (least + most) / 2, 2 * least))
