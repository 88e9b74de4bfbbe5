"""Relations whose affinity decays exponentially with a distance, at a speed that each head learns.

The Laplacian is the paper's relation; dot products, the Gaussian and the Hamming distance stand beside it for
comparison. A `TableRelation` is any falling function of the l1 distance of codes, and is deployed as a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from lapis.config import LapisConfig
from lapis.deploy.leak import leak_factor, membranes, time_constant
from lapis.deploy.network import Affinities, Block, Leak
from lapis.deploy.schema import LONGEST_DELAY
from lapis.errors import LapisError
from lapis.nn.quantizer import Calibrated
from lapis.nn.relations.base import DotProduct, Mixer, Relation
from lapis.ops.attention.torch_native import attention
from lapis.ops.distance import eager, torch_native
from lapis.ops.distance.eager import dot_distance, squared_distance
from lapis.ops.distance.torch_native import hamming_distance
from lapis.ops.gpu.choice import served_by_triton
from lapis.ops.row_scale.eager import log_affinity
from lapis.relations import DotRule, GaussianRule, HammingRule, LaplacianRule, Rule, TableRule

# First time constants that are tried, in units of the spread of distances; the readout changes little between two.
FACTORS = torch.linspace(-2.0, 2.0, 33).exp()


class DistanceRelation(Relation, Calibrated):
    """ln A_ij = -(D_ij + delay_ij) / tau_h, with a learned tau for each head.

    `init_from_data` finds tau, unless it was loaded: the one with which the head's readout is closest to that of
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
        self.check_ready()
        distance, tau = self.distance(q, k), self.tau
        if self.position is not None:
            distance = distance + self.position.delay(tau)
        return log_affinity(distance, tau)

    @torch.no_grad()
    def init_from_data(self, q: Tensor, k: Tensor, v: Tensor, readout: Tensor) -> None:
        self.log_tau.copy_(first_tau(self.distance(q, k)).log())
        self.mark_ready()
        fit_heads(self.log_tau, lambda: self.mix(q, k, v), readout)

    def fold(self, distances: int) -> Leak:
        mantissa, exponent = leak_factor(self.tau.detach().cpu().numpy().astype(np.float32))
        if self.position is None:
            return Leak(mantissa, exponent)
        delay = self.position.steps(self.tau).detach().cpu().numpy()
        if float(delay.max()) > LONGEST_DELAY:
            raise LapisError(f"a position delay of {int(delay.max())} steps was learned; a file holds {LONGEST_DELAY}")
        return Leak(mantissa, exponent, delay.astype(np.uint16))

    @torch.no_grad()
    def unfold(self, block: Block) -> None:
        assert block.leak is not None
        tau = time_constant(block.leak.mantissa, block.leak.exponent)
        self.log_tau.copy_(torch.from_numpy(np.log(tau)))
        if self.position is not None and block.leak.delay is not None:
            self.position.table.copy_(torch.from_numpy(-block.leak.delay.astype(np.float64) / tau))


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


def first_tau(distance: Tensor) -> Tensor:
    """The standard deviation of distances (B, H, N, M) over the keys, for each head (H,): a first time constant."""
    return distance.float().std(dim=-1, correction=0).mean(dim=(0, 2)).clamp_min(1e-3)


def with_tau(relation: Mixer) -> DistanceRelation:
    """The relation of a network whose affinities must decay with a distance."""
    if not isinstance(relation, DistanceRelation):
        raise LapisError(
            f"{type(relation).__name__} has no time constants; use relation=laplacian, gaussian or hamming"
        )
    return relation


class Laplacian(DistanceRelation):
    """D_ij = sum_c |q_ic - k_jc|: the l1 distance of first-spike latencies."""

    rule = LaplacianRule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        # Real values, in a network without quantizers, have no integer kernel.
        self.l1_distance = torch_native.l1_distance if config.quantize else eager.l1_distance
        self.fused = config.quantize
        self.codes = (config.low("q"), config.window)

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        return self.l1_distance(q, k)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """As every relation, but without an N x N matrix in memory: on a GPU, and where no gradient is needed.

        Narrow affinities are rounded one by one, so their matrix is made.
        """
        self.check_ready()
        on_cpu_with_gradient = torch.is_grad_enabled() and not served_by_triton(q)
        if on_cpu_with_gradient or not self.fused or self.narrow:
            return super().mix(q, k, v)
        delay = None if self.position is None else self.position.delay(self.tau)
        return attention(q, k, v, self.tau, self.row_scale, delay, self.codes)


class CodeProduct(DistanceRelation):
    """D_ij = max_j(q_i . k_j) - q_i . k_j of codes: softmax attention where tau = sqrt(C) / (step of codes)**2."""

    rule = DotRule

    @classmethod
    def for_block(cls, config: LapisConfig, block: int) -> Mixer:
        """Without quantizers, the attention of dense transformers, which learns no tau."""
        return cls(config) if config.quantize else DotProduct(config)

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        return dot_distance(q, k)


class Gaussian(DistanceRelation):
    """D_ij = sum_c (q_ic - k_jc)**2."""

    rule = GaussianRule

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        return squared_distance(q, k)


class Hamming(DistanceRelation):
    """D_ij = the number of channels with unequal latencies."""

    rule = HammingRule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.shift = -config.low("q")
        self.levels = config.window + self.shift + 1

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        return hamming_distance(q + self.shift, k + self.shift, self.levels)


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
        log_a = self.log_affinity(torch_native.l1_distance(q, k))
        return log_a if self.position is None else log_a + self.position.bias()

    def init_from_data(self, q: Tensor, k: Tensor, v: Tensor, readout: Tensor) -> None:
        """Nothing is found here; a subclass with parameters sets them without a gradient, then calls `mark_ready`."""
        self.mark_ready()

    @torch.no_grad()
    def fold(self, distances: int) -> Affinities:
        steps = torch.arange(distances, dtype=torch.float64, device=self.ready.device)
        log_a = self.log_affinity(steps.expand(1, self.heads, 1, distances)).expand(1, self.heads, 1, distances)
        return Affinities(*membranes(log_a[0, :, 0].double().cpu().numpy() / math.log(2.0)))
