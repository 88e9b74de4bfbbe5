"""The Gaussian, for comparison."""

from __future__ import annotations

from torch import Tensor

from lapis.nn.relations.distance import DistanceRelation
from lapis.ops.squared_distance.eager import squared_distance
from lapis.relations.gaussian import GaussianRule


class Gaussian(DistanceRelation):
    """D_ij = sum_c (q_ic - k_jc)**2."""

    rule = GaussianRule

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        return squared_distance(q, k)
