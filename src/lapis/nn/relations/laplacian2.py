"""The Laplacian in powers of two."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from lapis.config import LapisConfig
from lapis.nn.relations.distance import spread
from lapis.nn.relations.straight_through import passed
from lapis.nn.relations.table import TableRelation
from lapis.relations.laplacian2 import Laplacian2Rule

LN2 = math.log(2.0)


class Laplacian2(TableRelation):
    """A_ij = 2**-floor(D_ij / m_h + 1/2), D the l1 distance of codes: m_h, learned, is the distance that halves A.

    floor has the slope 1. m starts where the Laplacian does, at 2**-(D/m) = exp(-D/tau), tau the spread of D over the
    keys.
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
        halvings = distance / self.halving.to(distance.dtype)
        return -LN2 * passed((halvings + 0.5).floor(), halvings)

    @torch.no_grad()
    def calibrate(self, distance: Tensor) -> None:
        self.log_halving.copy_((spread(distance) * LN2).log())
        self.mark_ready()
