"""The rule of EcoTransformer."""

from __future__ import annotations

from torch import Tensor

from lapis.config import LapisConfig
from lapis.nn.relations.base import Relation
from lapis.ops.l1_distance.eager import l1_distance
from lapis.relations.eco import EcoRule


class Eco(Relation):
    """ln A_ij = -sum_c |q_ic - k_jc| / sqrt(C) of values: a Laplacian whose time constant is not learned."""

    on_codes = False
    rule = EcoRule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.scale = config.head_width**-0.5

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        log_a: Tensor = -self.scale * l1_distance(q, k)
        return log_a if self.position is None else log_a + self.position.bias()
