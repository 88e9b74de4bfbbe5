"""Relations whose affinity is any falling function of the l1 distance of codes; they are deployed as a table.

`Laplacian2` is the Laplacian in powers of two.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from lapis.config import LapisConfig
from lapis.deploy.leak import membranes
from lapis.deploy.network import Affinities, Block, Shifts
from lapis.errors import LapisError
from lapis.nn.quantizer import Calibrated
from lapis.nn.relations.base import Relation
from lapis.nn.relations.distance import first_tau, fit_heads
from lapis.ops.distance.torch_native import l1_distance
from lapis.relations import Laplacian2Rule, Rule, TableRule

LN2 = math.log(2.0)
MOST_HALVINGS = (1 << 16) - 1


class TableRelation(Relation, Calibrated):
    """ln A_ij = f_h(D_ij), D_ij = sum_c |q_ic - k_jc| of codes. A relation of your own gives f in `log_affinity`.

    The distance is an integer, so f has finitely many values; a packed file stores them and every executor reads them.
    """

    on_codes = True
    rule: ClassVar[type[Rule]] = TableRule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.heads = config.heads

    def log_affinity(self, distance: Tensor) -> Tensor:
        """f_h(D), element by element: (B, H, N, M) -> (B, H, N, M), finite and never rising with D."""
        raise NotImplementedError

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        self.check_ready()
        log_a = self.log_affinity(l1_distance(q, k))
        return log_a if self.position is None else log_a + self.position.bias()

    def init_from_data(self, q: Tensor, k: Tensor, v: Tensor, readout: Tensor) -> None:
        """Nothing is found here; a subclass with parameters sets them without a gradient, then calls `mark_ready`."""
        self.mark_ready()

    @torch.no_grad()
    def fold(self, distances: int) -> Affinities | Shifts:
        steps = torch.arange(distances, dtype=torch.float64, device=self.ready.device)
        log_a = self.log_affinity(steps.expand(1, self.heads, 1, distances)).expand(1, self.heads, 1, distances)
        return Affinities(*membranes(log_a[0, :, 0].double().cpu().numpy() / math.log(2.0)))


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
        return -LN2 * (halvings + ((halvings + 0.5).floor() - halvings).detach())

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
    def init_from_data(self, q: Tensor, k: Tensor, v: Tensor, readout: Tensor) -> None:
        self.log_halving.copy_((first_tau(l1_distance(q, k)) * LN2).log())
        self.mark_ready()
        fit_heads(self.log_halving, lambda: self.mix(q, k, v), readout)


def halving_distances(halvings: npt.NDArray[np.uint16]) -> npt.NDArray[np.float64]:
    """m_h with floor(D / m_h + 1/2) = halvings[h][D] for D = 0..S-1: (H, S) -> (H,), where there is one.

    n - 1/2 <= D/m < n + 1/2 bounds m from both sides; the middle of all bounds is taken.
    """
    n, distance = halvings.astype(np.float64), np.arange(halvings.shape[1], dtype=np.float64)
    least = (distance / (n + 0.5)).max(axis=1)
    most = np.where(n > 0, distance / np.maximum(n - 0.5, 0.5), np.inf).min(axis=1)
    return np.asarray(np.where(np.isfinite(most), (least + most) / 2, 2 * least))
