"""The Hamming distance of latencies, for comparison."""

from __future__ import annotations

from torch import Tensor

from lapis.config import LapisConfig
from lapis.nn.relations.distance import DistanceRelation
from lapis.ops.hamming_distance.torch_native import hamming_distance
from lapis.relations.hamming import HammingRule


class Hamming(DistanceRelation):
    """D_ij = the number of channels with unequal latencies."""

    rule = HammingRule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.shift = -config.low("q")
        self.levels = config.window + self.shift + 1

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        return hamming_distance(q + self.shift, k + self.shift, self.levels)
