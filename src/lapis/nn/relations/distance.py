"""Relations whose affinity decays exponentially with a distance, at a speed that each head learns."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lapis.config import LapisConfig
from lapis.errors import LapisError
from lapis.nn.calibrated import Calibrated
from lapis.nn.relations.base import Mixer, Relation
from lapis.ops.affinity.eager import log_affinity


class DistanceRelation(Relation, Calibrated):
    """ln A_ij = -(D_ij + delay_ij) / tau_h, with a learned tau for each head.

    tau is found from the first data seen, unless loaded: the standard deviation of D over the keys.
    """

    on_codes = True

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.log_tau = nn.Parameter(torch.zeros(config.heads))

    @property
    def tau(self) -> Tensor:
        return self.log_tau.exp()

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        """(B, H, N, C) twice  ->  (B, H, N, N), at least 0."""
        raise NotImplementedError

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        distance = self.distance(q, k)
        if not self.is_ready:
            self.calibrate(distance)
        tau = self.tau
        if self.position is not None:
            distance = distance + self.position.delay(tau)
        return log_affinity(distance, tau)

    @torch.no_grad()
    def calibrate(self, distance: Tensor) -> None:
        self.log_tau.copy_(spread(distance).log())
        self.mark_ready()


def spread(distance: Tensor) -> Tensor:
    """The standard deviation of distances (B, H, N, M) over the keys, for each head (H,): a first time constant."""
    return distance.float().std(dim=-1, correction=0).mean(dim=(0, 2)).clamp_min(1e-3)


def with_tau(relation: Mixer) -> DistanceRelation:
    """The relation of a network whose affinities must decay with a distance."""
    if not isinstance(relation, DistanceRelation):
        raise LapisError(
            f"{type(relation).__name__} has no time constants; use relation=laplacian, gaussian or hamming"
        )
    return relation
