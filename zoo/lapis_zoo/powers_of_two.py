"""The Laplacian in powers of two: its affinity needs a shift where the Laplacian's needs a multiplication."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lapis.nn import DistanceRelation, TableRelation
from lapis.ops import l1_distance
from lapis_zoo.rules import Laplacian2Rule
from lapis_zoo.steps import straight_through

LN2 = math.log(2.0)


class Laplacian2(TableRelation, DistanceRelation):  # type: ignore[misc]  # it folds as a table
    """A_ij = 2**-floor(D_ij / m_h + 1/2), D the l1 distance of codes; m_h = tau_h ln 2 is the distance that halves A.

    floor has the slope 1. tau is found and learned as the Laplacian's.
    """

    rule = Laplacian2Rule

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        distance: Tensor = l1_distance(q, k)
        return distance

    def log_affinity(self, distance: Tensor) -> Tensor:
        halvings = distance / (LN2 * self.tau).view(-1, 1, 1)
        return -LN2 * straight_through((halvings + 0.5).floor(), halvings)

    @torch.no_grad()
    def init_from_data(self, q: Tensor, k: Tensor, v: Tensor, readout: Tensor) -> None:
        DistanceRelation.init_from_data(self, q, k, v, readout)
