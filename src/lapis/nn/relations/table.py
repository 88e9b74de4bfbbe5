"""Relations whose affinity is any falling function of the l1 distance of codes; they are deployed as a table."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from lapis.config import LapisConfig
from lapis.deploy.leak import membranes
from lapis.deploy.network import Affinities
from lapis.nn.quantizer import Calibrated
from lapis.nn.relations.base import Relation
from lapis.ops.distance.torch_native import l1_distance
from lapis.relations import Rule, TableRule


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
    def fold(self, distances: int) -> Affinities:
        steps = torch.arange(distances, dtype=torch.float64, device=self.ready.device)
        log_a = self.log_affinity(steps.expand(1, self.heads, 1, distances)).expand(1, self.heads, 1, distances)
        return Affinities(*membranes(log_a[0, :, 0].double().cpu().numpy() / math.log(2.0)))
