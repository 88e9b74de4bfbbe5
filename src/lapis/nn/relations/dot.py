"""The dot product."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from lapis.config import LapisConfig
from lapis.nn.relations.base import Relation
from lapis.relations import Rule
from lapis.relations.dot import DotRule


class DotProduct(Relation):
    """ln A_ij = q_i . k_j / sqrt(C) + b_ij: the attention of dense transformers, for comparison."""

    on_codes = False
    rule: ClassVar[type[Rule]] = DotRule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.scale = config.head_width**-0.5

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        scores: Tensor = (q * self.scale) @ k.transpose(-1, -2)
        return scores if self.position is None else scores + self.position.bias()
