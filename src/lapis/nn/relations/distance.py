"""Relations whose affinity decays exponentially with a distance, at a speed that each head learns."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lapis.config import LapisConfig
from lapis.errors import LapisError
from lapis.nn.calibrated import Calibrated
from lapis.nn.relations.base import Mixer, Relation
from lapis.ops.affinity.eager import log_affinity

# First time constants that are tried, in units of the spread of distances; the readout changes little between two.
FACTORS = torch.linspace(-2.0, 2.0, 33).exp()


class DistanceRelation(Relation, Calibrated):
    """ln A_ij = -(D_ij + delay_ij) / tau_h, with a learned tau for each head.

    tau is found from the first data seen, unless loaded: the one with which the head's readout is closest to that of
    softmax attention. Heads that were sharp or wide in imported weights stay so.
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
    def meet(self, q: Tensor, k: Tensor, v: Tensor, readout: Tensor) -> None:
        self.calibrate(self.distance(q, k))
        fit_heads(self.log_tau, lambda: self.mix(q, k, v), readout)

    @torch.no_grad()
    def calibrate(self, distance: Tensor) -> None:
        """A first tau from distances alone: their standard deviation over the keys."""
        self.log_tau.copy_(spread(distance).log())
        self.mark_ready()


@torch.no_grad()
def fit_heads(logarithm: nn.Parameter, mix: Callable[[], Tensor], readout: Tensor) -> None:
    """Choose for each head the time constant, given as its logarithm (H,), with which mix() is closest to `readout`.

    The constants tried are FACTORS times the present one; readouts are (B, H, N, C), compared by squared error.
    """
    first = logarithm.clone()
    best, least = first.clone(), torch.full_like(first, torch.inf)
    for factor in FACTORS:
        logarithm.copy_(first + factor.log())
        error = (mix() - readout).square().mean(dim=(0, 2, 3))
        best = torch.where(error < least, logarithm, best)
        least = torch.minimum(error, least)
    logarithm.copy_(best)


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
