"""The relation of a query and a key: ln A_ij, computed by one of four rules."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lapis.config import LapisConfig
from lapis.errors import LapisError
from lapis.nn.calibrated import Calibrated
from lapis.nn.position import RelativePosition
from lapis.ops.affinity.eager import log_affinity
from lapis.ops.attention.torch_native import attention
from lapis.ops.hamming_distance.torch_native import hamming_distance
from lapis.ops.l1_distance import eager, torch_native
from lapis.ops.row_scale.eager import scale_rows
from lapis.ops.squared_distance.eager import squared_distance


class Relation(nn.Module):
    """ln A_ij of queries and keys (B, H, N, C), and the values mixed by it."""

    # Whether queries and keys come as codes, or as the values that the codes stand for.
    on_codes: bool

    def __init__(self, config: LapisConfig) -> None:
        super().__init__()
        self.row_scale = config.row_scale
        self.position = RelativePosition(config.grid, config.heads) if config.relative_position else None

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """(B, H, N, C) twice  ->  (B, H, N, N) log affinities."""
        raise NotImplementedError

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """sum_j W_ij v_j (B, H, N, C), W the affinities scaled by rows."""
        return scale_rows(self(q, k), self.row_scale) @ v


class DotProduct(Relation):
    """ln A_ij = q_i . k_j / sqrt(C) + b_ij: the attention of dense transformers, for comparison."""

    on_codes = False

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.scale = config.head_width**-0.5

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        scores: Tensor = (q * self.scale) @ k.transpose(-1, -2)
        return scores if self.position is None else scores + self.position.bias()


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
        spread = distance.float().std(dim=-1, correction=0).mean(dim=(0, 2)).clamp_min(1e-3)
        self.log_tau.copy_(spread.log())
        self.mark_ready()


def with_tau(relation: Relation) -> DistanceRelation:
    """The relation of a network whose affinities must decay with a distance."""
    if not isinstance(relation, DistanceRelation):
        raise LapisError("a dot product has no time constants; use relation=laplacian, gaussian or hamming")
    return relation


class Laplacian(DistanceRelation):
    """D_ij = sum_c |q_ic - k_jc|: the l1 distance of first-spike latencies, the paper's relation."""

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        # Real values, in a network without quantizers, have no integer kernel.
        self.l1_distance = torch_native.l1_distance if config.quantize else eager.l1_distance
        self.fused = config.quantize

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        return self.l1_distance(q, k)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """As every relation, but without an N x N matrix in memory where no gradient is needed."""
        if torch.is_grad_enabled() or not self.fused or not self.is_ready:
            return super().mix(q, k, v)
        delay = None if self.position is None else self.position.delay(self.tau)
        return attention(q, k, v, self.tau, self.row_scale, delay)


class Gaussian(DistanceRelation):
    """D_ij = sum_c (q_ic - k_jc)**2."""

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        return squared_distance(q, k)


class Hamming(DistanceRelation):
    """D_ij = the number of channels with unequal latencies."""

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.shift = -config.low("q")
        self.levels = config.window + self.shift + 1

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        return hamming_distance(q + self.shift, k + self.shift, self.levels)


RELATIONS: dict[str, type[Relation]] = {
    "laplacian": Laplacian,
    "dot": DotProduct,
    "gaussian": Gaussian,
    "hamming": Hamming,
}
